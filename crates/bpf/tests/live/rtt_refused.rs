//! Kernels that lack something and hosts that refuse something: what can be measured is,
//! and what cannot ends in an error that says what to do.

use std::process::Command;

use crate::common::refuse::{
    BTF_LOAD, LINK_CREATE, MAP_CREATE, OBJ_PIN, PROG_LOAD, PROG_TEST_RUN, alone, refuse_bpf,
};
use crate::common::rtt::{MS, T0, echo};
use crate::common::{in_namespace, privileged, veth_pair};
use sonde_bpf::{BpfError, RttConfig, RttEvents, RttHook, RttProgram, RttSide};

/// All programs, so that nothing is left out that the kernel might refuse.
fn config() -> RttConfig {
    RttConfig {
        flows: 1024,
        events: RttEvents::All,
        tunnels: true,
        residence: true,
        xdp: true,
        ..RttConfig::default()
    }
}

/// A request and its reply make one sample at each hook.
fn measures(program: &mut RttProgram) {
    for (n, side) in [RttSide::Ingress, RttSide::Egress, RttSide::Xdp].into_iter().enumerate() {
        let sequence = n as u16;
        program.test_run(side, &echo(false, sequence), T0).unwrap();
        program.test_run(side, &echo(true, sequence), T0 + 3 * MS).unwrap();
        let mut samples = vec![];
        program.poll(Default::default(), &mut |s| samples.push(s), &mut |_| ()).unwrap();
        assert_eq!((samples.len(), samples[0].rtt_ns), (1, 3 * MS as u64), "{side:?}");
    }
}

#[test]
fn what_the_kernel_refuses_is_named_with_what_to_do() {
    let name = "what_the_kernel_refuses_is_named_with_what_to_do";
    let cases = [
        // A container's filter: the capabilities are there, and still.
        (Some(PROG_LOAD), libc::EPERM, "it is a seccomp filter that refuses"),
        (Some(MAP_CREATE), libc::EPERM, "it is a seccomp filter that refuses"),
        (Some(PROG_TEST_RUN), libc::EPERM, "it is a seccomp filter that refuses"),
        (None, libc::EPERM, "it is a seccomp filter that refuses"),
        (None, libc::ENOSYS, "CONFIG_BPF_SYSCALL"),
        (Some(MAP_CREATE), libc::ENOMEM, "'memory.max'"),
        // What an older kernel says to a program, a kind of map or a type that it lacks.
        (Some(PROG_LOAD), libc::EINVAL, "this is Linux"),
        (Some(MAP_CREATE), libc::EINVAL, "this is Linux"),
        (Some(BTF_LOAD), libc::EINVAL, "this is Linux"),
    ];
    if !privileged(name) {
        return;
    }
    let Some(case) = alone(module_path!(), name, cases.len()) else { return };
    let (command, errno, advice) = cases[case];
    refuse_bpf(command, errno);
    let error = RttProgram::load(&config()).unwrap_err();
    let text = error.to_string();
    println!("{text}");
    assert!(text.contains(advice), "'{advice}' is missing: {text}");
    let as_expected = match errno {
        libc::EPERM => matches!(error, BpfError::Privilege { .. }),
        libc::ENOMEM => matches!(error, BpfError::Memory { .. }),
        _ => matches!(error, BpfError::Verifier { .. }),
    };
    assert!(as_expected, "{error:?}");
}

#[test]
fn what_cannot_be_attached_or_pinned_is_named_too() {
    let name = "what_cannot_be_attached_or_pinned_is_named_too";
    if !privileged(name) {
        return;
    }
    let Some(case) = alone(module_path!(), name, 2) else { return };
    in_namespace(move || {
        let (a, _) = veth_pair(1500);
        let mut program = RttProgram::load(&config()).unwrap();
        let refused = if case == 0 {
            refuse_bpf(Some(LINK_CREATE), libc::EPERM);
            program.attach(a as i32, 0, RttHook::Tc, false).map(drop)
        } else {
            refuse_bpf(Some(OBJ_PIN), libc::EPERM);
            program.attach(a as i32, 0, RttHook::Tc, false).unwrap();
            program.pin("/sys/fs/bpf/none".as_ref())
        };
        assert!(matches!(refused, Err(BpfError::Privilege { .. })), "{refused:?}");
    });
}

/// No program asks the kernel for its own types.
#[test]
fn a_kernel_that_does_not_describe_its_types_will_do() {
    let name = "a_kernel_that_does_not_describe_its_types_will_do";
    if !privileged(name) {
        return;
    }
    if alone(module_path!(), name, 1).is_none() {
        return;
    }
    // SAFETY: affects this thread alone, and the commands that it starts.
    let rc = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    assert_eq!(rc, 0, "unshare: {}", std::io::Error::last_os_error());
    for args in [&["--make-rprivate", "/"][..], &["-t", "tmpfs", "none", "/sys/kernel/btf"]] {
        assert!(Command::new("mount").args(args).status().unwrap().success(), "{args:?}");
    }
    assert!(!std::fs::exists("/sys/kernel/btf/vmlinux").unwrap());
    measures(&mut RttProgram::load(&config()).unwrap());
}

#[test]
fn no_limit_needs_to_be_raised() {
    let name = "no_limit_needs_to_be_raised";
    if !privileged(name) {
        return;
    }
    if alone(module_path!(), name, 1).is_none() {
        return;
    }
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is valid; the limit is this process's own.
    let rc = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &none) };
    assert_eq!(rc, 0, "setrlimit: {}", std::io::Error::last_os_error());
    measures(&mut RttProgram::load(&config()).unwrap());
    let mut now = none;
    // SAFETY: valid memory for the answer.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut now) };
    assert_eq!((now.rlim_cur, now.rlim_max), (0, 0), "and none was");
}
