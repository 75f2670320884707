//! Reflectors asked in wrong ways: at most one reply to a request, and none to rubbish.

use super::actors;
use super::net::Net;

const REFLECTORS: [&str; 4] = [
    "",
    "--engine af_packet --iface eth0",
    "--engine af_xdp --iface eth0",
    "--kernel --iface eth0",
];

#[test]
fn one_reply_to_a_request_and_none_to_rubbish() {
    let Some(net) = Net::pair("one_reply_to_a_request_and_none_to_rubbish") else { return };
    for arguments in REFLECTORS {
        let reflector = net.reflect(arguments);
        for (local, peer) in [("10.1.0.1:0", "10.1.0.2:862"), ("[::]:0", "[fd00:1::2]:862")] {
            let what = format!("{arguments} {peer}");
            let seen = actors::run(&net.topology.probe, &format!("requests {local} {peer}"));
            assert_eq!(seen["tiny"], 0, "{what}");
            assert_eq!((seen["short"], seen["short_longest"]), (30, 44), "{what}");
            assert_eq!((seen["odd"], seen["odd_longest"]), (256, 144), "{what}");
            assert_eq!((seen["replayed"], seen["replayed_longest"]), (100, 44), "{what}");
        }
        // From its own port, as twping does by default.
        let seen = actors::run(&net.topology.probe, "requests 10.1.0.1:862 10.1.0.2:862");
        assert_eq!((seen["short"], seen["odd"], seen["replayed"]), (30, 256, 100), "{arguments}");
        reflector.stop();
    }
}

#[test]
fn noise_does_not_disturb_a_reflector() {
    let Some(net) = Net::pair("noise_does_not_disturb_a_reflector") else { return };
    for arguments in REFLECTORS {
        let mut reflector = net.reflect(arguments);
        let mut probe = net.start("10.1.0.2 --engine socket -i 2ms -c 500 --json");
        reflector.until("/reflected", 50);
        actors::run(&net.topology.probe, "noise 10.1.0.1:7777 10.1.0.2:862 400");
        assert!(probe.is_running(), "{arguments}: the noise came too late to be a test");
        let run = super::net::read_run(&probe.end(), arguments);
        super::net::assert_clean(&run, 1, 500, arguments);
        reflector.stop();
    }
}
