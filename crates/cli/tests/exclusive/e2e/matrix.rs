//! Every engine against every reflector, over IPv4 and IPv6.

use sonde_wire::StampSource;

use super::net::{ENGINES, Net, assert_clean};

#[test]
fn every_engine_with_the_socket_reflector() {
    every_engine("every_engine_with_the_socket_reflector", "", "/user/reflected");
}

#[test]
fn every_engine_with_the_af_packet_reflector() {
    let reflector = "--engine af_packet --iface eth0";
    every_engine("every_engine_with_the_af_packet_reflector", reflector, "/user/reflected");
}

#[test]
fn every_engine_with_the_af_xdp_reflector() {
    let reflector = "--engine af_xdp --iface eth0";
    every_engine("every_engine_with_the_af_xdp_reflector", reflector, "/user/reflected");
}

#[test]
fn every_engine_with_the_kernel_reflector() {
    let reflector = "--kernel --iface eth0";
    every_engine("every_engine_with_the_kernel_reflector", reflector, "/kernel/reflected");
}

/// `counter`: where the reflector must count the replies.
fn every_engine(test: &str, reflector: &str, counter: &str) {
    let Some(net) = Net::pair(test) else { return };
    let mut reflector = net.reflect(reflector);
    let mut reflected = 0;
    for engine in ENGINES {
        for host in ["10.1.0.2", "fd00:1::2"] {
            let what = format!("{engine} {host}");
            let run = net.measure(&format!("{host} --engine {engine} -i 1ms -c 200"));
            assert_clean(&run, 1, 200, &what);
            let promised =
                if engine == "af_xdp" { StampSource::Driver } else { StampSource::Kernel };
            let total = &run.totals[0];
            assert_eq!(
                (total.t1_source, total.t4_source),
                (Some(promised), Some(promised)),
                "{what}"
            );
            assert!(run.config.engine.starts_with(engine), "{what}: {}", run.config.engine);
            // In user space the reflector takes time; in the kernel perhaps less than a
            // unit of the time stamps.
            if counter.starts_with("/user") {
                assert!(total.rtt_net.sum < total.rtt.sum, "{what}");
            }
            reflected += 200;
            reflector.until(counter, reflected);
            assert_eq!(reflector.count("/reflected"), reflected, "{what}");
        }
    }
    reflector.stop();
}
