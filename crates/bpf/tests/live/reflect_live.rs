//! The kernel reflector on veth: ordinary sockets get their replies, and nothing stays
//! attached when its process is killed.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use crate::common::packet::{OUR_PORT, base};
use crate::common::{
    in_namespace, index, ip, nothing_outlives_the_kill, privileged, veth_pair, wait_for_the_kill,
    xdp_attached,
};
use sonde_bpf::{AttachMode, KernelReflector, KernelReflectorConfig, XskFilter, XskProgram};

const LIMIT: Duration = Duration::from_secs(5);

fn attach(mode: AttachMode) -> KernelReflector {
    let local = [("192.0.2.2".parse().unwrap(), 32), ("2001:db8::2".parse().unwrap(), 128)];
    let config = KernelReflectorConfig {
        veth: true,
        max_sessions: 10,
        ..KernelReflectorConfig::new(OUR_PORT, &local)
    };
    KernelReflector::attach(index("vb"), &config, mode).unwrap()
}

/// The requests' checksums are partial, as a socket leaves them to the card; those of the
/// replies are verified by the network stack here.
#[test]
fn an_ordinary_socket_gets_its_replies() {
    if !privileged("an_ordinary_socket_gets_its_replies") {
        return;
    }
    // In native mode the peer needs NAPI, by a program or by GRO; generic mode does not.
    for (mode, program) in
        [(AttachMode::Native, true), (AttachMode::Native, false), (AttachMode::Generic, false)]
    {
        in_namespace(move || {
            let (a, _) = veth_pair(1500);
            let tap = XskFilter { local_ports: &[1], peer_ports: &[], local: &[] };
            let _tap =
                program.then(|| XskProgram::attach(a, &tap, AttachMode::Native, false).unwrap());
            if mode == AttachMode::Native && !program {
                let gro = Command::new("ethtool").args(["-K", "va", "gro", "on"]).status();
                assert!(gro.unwrap().success());
            }
            let _reflector = attach(mode);
            // `vb` has no addresses: all that answers is the program.
            std::fs::write("/proc/sys/net/ipv6/conf/va/disable_ipv6", "0").unwrap();
            ip(&["link", "set", "vb", "address", "02:00:00:00:00:02"]);
            ip(&["addr", "add", "192.0.2.1/24", "dev", "va"]);
            ip(&["addr", "add", "2001:db8::1/64", "dev", "va", "nodad"]);
            for far in ["192.0.2.2", "2001:db8::2"] {
                ip(&["neigh", "add", far, "lladdr", "02:00:00:00:00:02", "dev", "va"]);
            }
            for (near, far) in [("192.0.2.1:0", "192.0.2.2"), ("[2001:db8::1]:0", "2001:db8::2")] {
                let socket = UdpSocket::bind(near).unwrap();
                socket.set_read_timeout(Some(LIMIT)).unwrap();
                let far = SocketAddr::new(far.parse().unwrap(), OUR_PORT);
                for seq in 0..3u32 {
                    let mut request = base(70 + seq, 0x1234);
                    request.resize(122, 0);
                    socket.send_to(&request, far).unwrap();
                    let mut reply = [0; 200];
                    let (n, from) = socket
                        .recv_from(&mut reply)
                        .unwrap_or_else(|e| panic!("{mode:?} {far} reply {seq}: {e}"));
                    assert_eq!((n, from.ip(), from.port()), (122, far.ip(), far.port()));
                    assert_eq!(reply[..4], seq.to_be_bytes());
                    assert_eq!(reply[24..28], (70 + seq).to_be_bytes());
                }
            }
        });
    }
}

/// The victim of the next test: attaches to `vb` of the namespace it is started in and
/// waits to be killed.
#[test]
#[ignore = "started by nothing_stays_attached_after_kill_9 alone"]
fn attach_and_wait() {
    let _reflector = attach(AttachMode::Native);
    wait_for_the_kill()
}

#[test]
fn nothing_stays_attached_after_kill_9() {
    if !privileged("nothing_stays_attached_after_kill_9") {
        return;
    }
    nothing_outlives_the_kill(module_path!(), || xdp_attached("vb"));
}
