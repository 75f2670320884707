//! Compiles every `c/*.bpf.c` to eBPF and generates its skeleton.

#![expect(clippy::disallowed_methods, reason = "Cargo tells a build script by the environment")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=c");
    if Command::new("clang").arg("--version").output().is_err() {
        fail("clang is missing: it compiles the eBPF programs; run 'make setup' to install it");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // Debian keeps the kernel's <asm/...> headers in a folder per architecture, which
    // clang does not search when it compiles for eBPF.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the architecture");
    let include = format!("-I/usr/include/{arch}-linux-gnu");

    for source in sources(Path::new("c")) {
        println!("cargo::rerun-if-changed={}", source.display());
        let name = source.file_name().and_then(|n| n.to_str()).expect("our names are plain");
        let skeleton = out.join(name.replace(".bpf.c", ".skel.rs"));
        // v3: 32-bit operations and atomics that return the old value (Linux 5.12).
        if let Err(e) = SkeletonBuilder::new()
            .source(&source)
            .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Werror", &include])
            .build_and_generate(&skeleton)
        {
            fail(&format!("{e:#}"));
        }
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in folder.read_dir().expect("c/ exists") {
        let path = entry.expect("c/ can be read").path();
        println!("cargo::rerun-if-changed={}", path.display());
        if path.to_string_lossy().ends_with(".bpf.c") {
            all.push(path);
        }
    }
    all.sort();
    all
}

fn fail(message: &str) -> ! {
    eprintln!("\nerror: sonde-bpf: {message}\n");
    std::process::exit(1);
}
