//! A kernel that refuses: seccomp for the calling thread, and a process of its own for what
//! libbpf would remember of it.

use std::process::Command;

use super::test_name;

/// `include/uapi/linux/bpf.h`, `enum bpf_cmd`.
pub const MAP_CREATE: u32 = 0;
pub const PROG_LOAD: u32 = 5;
pub const OBJ_PIN: u32 = 6;
pub const PROG_TEST_RUN: u32 = 10;
pub const BTF_LOAD: u32 = 18;
pub const LINK_CREATE: u32 = 28;

/// From now on bpf(2) gives the calling thread this error: for one command, or for all.
pub fn refuse_bpf(command: Option<u32>, errno: i32) {
    let statement = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let unless = |k, jf| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf,
        k,
    };
    // Of struct seccomp_data: the system call, and the lower half of its first argument.
    let word = |at| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    let mut filter = vec![word(0), unless(libc::SYS_bpf as u32, 1)];
    if let Some(command) = command {
        filter[1].jf = 3;
        filter.extend([word(16), unless(command, 1)]);
    }
    filter.extend([
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ]);
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is valid for its length during the call, and the filter is of
    // this thread alone.
    let rc = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) };
    assert_eq!(rc, 0, "seccomp: {}", std::io::Error::last_os_error());
}

/// Runs this test of `module` (`module_path!()`) in a process of its own, once for each of so many
/// cases; there, the index of the case.
#[expect(clippy::disallowed_methods, reason = "plays a part of the test in a process of its own")]
pub fn alone(module: &str, test: &str, cases: usize) -> Option<usize> {
    if let Some(case) = std::env::var_os(CASE) {
        return Some(case.to_str().unwrap().parse().unwrap());
    }
    for case in 0..cases {
        let run = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &test_name(module, test), "--nocapture"])
            .env(CASE, case.to_string())
            .output()
            .unwrap();
        let said = [run.stdout, run.stderr].concat();
        assert!(run.status.success(), "case {case}: {}", String::from_utf8_lossy(&said));
    }
    None
}

const CASE: &str = "SONDE_TEST_CASE";
