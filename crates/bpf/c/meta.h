/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The 24 octets before a frame that is handed to an AF_XDP socket. A reader of its buffer finds
 * them there without another map or ring.
 */
#ifndef SONDE_META_H
#define SONDE_META_H

#include <linux/bpf.h>

#define META_MAGIC 0x534f4e45 /* "SOND" + 1: the layout */

struct stamp {
	__u32 magic;
	__u32 wire_len; /* before it was cut; 0: it was not */
	__u64 ns;   /* TAI, read in this program */
	__u64 card; /* by the card's own clock, through the driver; 0: none */
};

#endif
