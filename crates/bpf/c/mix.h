/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The step of the hashes of sessions and of round trips; what is mixed in makes them keyed. That of
 * round trips is in Rust, too: crates/meter/src/rtt/key.rs.
 */
#ifndef SONDE_MIX_H
#define SONDE_MIX_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __always_inline __u64 mix(__u64 hash)
{
	hash *= 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 32;
}

#endif
