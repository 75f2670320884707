//! Agents, a benchmark that has their ports, and one on a device of the lab, in one process.

#[path = "../../run/tests/together/left.rs"]
mod left;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sonde_lab::{Host, Lab, LinkOptions};
use sonde_run::error::RunError;
use sonde_run::running::{Context, Next};
use sonde_testbed::agent::cert::{CertRequest, make};
use sonde_testbed::agent::{self, ServingAgent};
use sonde_testbed::execution::{self, Benchmarking, Event};
use sonde_testbed::plan::TomlText;
use sonde_testbed::store;

use self::left::{descriptors, threads};

#[test]
fn plans_and_agents_live_in_one_process_and_leave_nothing() {
    if sonde_lab::skip("plans_and_agents_live_in_one_process_and_leave_nothing") {
        return;
    }
    let bed = Bed::new();
    // What is made once and stays: pools of libraries, the log.
    together(&bed, "first");
    let before = (threads(), descriptors());
    together(&bed, "second");
    assert_eq!((threads(), descriptors()), before);
}

fn together(bed: &Bed, name: &str) {
    let agents = [0, 1].map(|i| bed.agent(i));
    // It would go on for hours.
    let local = "title = 'local'\n[bed]\nengine = 'af_packet'\nmax_rate = '5k'\n\
                 [run]\nloop = false\n[[device]]\nname = 'router'\nkind = 'router'\n\
                 [[procedure]]\nkind = 'fixed_load'\nloads = ['1k', '2k']\ntrial = '3600s'\n";
    let folder = bed.folder.join(format!("{name}-local"));
    let context = Context::default();
    let long = start(local, &folder, &context).unwrap();
    until("a trial", || long.status.get().present.is_some());
    // Another one in the same folder is refused, and a plan that is none is refused with its line.
    let twice = start(local, &folder, &Context::default()).err().unwrap().to_string();
    assert!(twice.contains("another process"), "{twice}");
    match start("title = 'x'\nwhat = 1\n", &folder, &Context::default()).err().unwrap() {
        RunError::Settings(why) => assert_eq!(why.line, Some(2), "{why}"),
        other => panic!("{other}"),
    }

    let folder = bed.folder.join(name);
    let apart = bed.controller.inside(|| start(&bed.plan(), &folder, &Context::default()));
    let apart = apart.unwrap().unwrap();
    let (mut measured, mut tried, mut run) = (0, 0, None);
    loop {
        match apart.records.next(Duration::from_secs(120)) {
            Next::Record(Event::Measured { resumed, .. }) => measured += usize::from(!resumed),
            Next::Record(Event::Tried(_)) => tried += 1,
            Next::Record(Event::Failed(why)) => panic!("{why}"),
            Next::Record(Event::Run(all)) => run = Some(all),
            Next::Record(Event::Trial(_)) => {}
            Next::Nothing => panic!("nothing for two minutes"),
            Next::End => break,
        }
    }
    assert_eq!(apart.records.lost(), 0);
    let status = apart.status.get();
    assert_eq!((status.planned, status.finished, status.present), (1, 1, None));
    let ended = apart.join();
    assert!(ended.failure.is_none(), "{ended:?}");
    assert_eq!((ended.counters["measurements"], ended.counters["failed"]), (1, 0));
    assert_eq!(ended.counters["trials"], tried);
    let run = *run.unwrap();
    assert_eq!((measured, run.measurements.len()), (1, 1));
    // The head has the plan as a value, with what it did not say.
    let head = store::read_findings(&folder).unwrap().config;
    assert_eq!(head.settings["device"][0]["name"], "dut");
    assert_eq!(head.settings["procedure"][0]["kind"], "fixed_load");
    assert_eq!((&head.settings["seed"], head.command), (&1.into(), Vec::<String>::new()));

    long.stop();
    let status = long.status.clone();
    let (last, ended) = long.last();
    assert!(ended.failure.is_none() && ended.counters["failed"] == 0, "{ended:?}");
    assert_eq!((ended.counters["measurements"], status.get().finished), (0, 0));
    assert!(matches!(last, Some(Event::Run(run)) if run.measurements.is_empty()));

    for agent in agents {
        agent.stop();
        let sessions = agent.status.clone();
        assert!(matches!(agent.records.next_now(), Some(agent::Event::Taken(_))));
        let (last, ended) = agent.last();
        assert!(ended.failure.is_none(), "{ended:?}");
        assert!(matches!(last, Some(agent::Event::Freed(_))), "{last:?}");
        assert_eq!(ended.counters["sessions"], sessions.get().sessions);
        assert_eq!(sessions.get().controller, None);
    }
}

fn start(plan: &str, folder: &Path, context: &Context) -> Result<Benchmarking, RunError> {
    let plan = TomlText { file: "plan".into(), text: plan.into() };
    let settings = execution::Settings { plan, out: folder.into() };
    execution::start(settings, context).map(|(_, benchmarking)| benchmarking)
}

fn until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(120), "no {what} in two minutes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Two hosts with a test port each, a router between these, and a host that controls both.
struct Bed {
    hosts: [Host; 2],
    controller: Host,
    /// The router's, towards each.
    macs: [String; 2],
    folder: PathBuf,
    _router: Host,
    _lab: Lab,
}

impl Bed {
    fn new() -> Bed {
        let mut lab = Lab::new("together").unwrap();
        let mut host = |name| lab.host(name).unwrap();
        let (a, router, b, controller) = (host("a"), host("dut"), host("b"), host("ctl"));
        for host in [&a, &router, &b] {
            // No packets of their own.
            host.sysctl(&["net.ipv6.conf.default.disable_ipv6=1"]).unwrap();
        }
        router.sysctl(&["net.ipv4.ip_forward=1"]).unwrap();
        let options = LinkOptions::default();
        let text = |mac: [u8; 6]| mac.map(|b| format!("{b:02x}")).join(":");
        let mut macs = Vec::new();
        for (i, host) in [&a, &b].into_iter().enumerate() {
            let (port, network) = (format!("eth{i}"), format!("198.{}.0", 18 + i));
            let (own, routers) = lab.link(host, "eth0", &router, &port, &options).unwrap();
            router.add_address(&port, &format!("{network}.1/24")).unwrap();
            router.set_neighbour(&port, &format!("{network}.2"), &text(own)).unwrap();
            macs.push(text(routers));
            let own = format!("ctl{i}");
            lab.link(&controller, &own, host, "mgmt", &options).unwrap();
            controller.add_address(&own, &format!("10.77.{i}.1/24")).unwrap();
            host.add_address("mgmt", &format!("10.77.{i}.2/24")).unwrap();
        }
        let folder = std::env::temp_dir().join(format!("sonde-together-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let certificates = CertRequest {
            hosts: [0, 1].map(|i| format!("10.77.{i}.2")).to_vec(),
            controllers: vec!["controller".into()],
            renew: false,
            dir: folder.join("lab"),
        };
        make(&certificates).unwrap();
        let macs = macs.try_into().unwrap();
        Bed { hosts: [a, b], controller, macs, folder, _router: router, _lab: lab }
    }

    fn agent(&self, i: usize) -> ServingAgent {
        let own = format!("10.77.{i}.2");
        let file = |name: &str| self.folder.join("lab").join(name);
        let settings = agent::Settings {
            listen: format!("{own}:8620").parse().unwrap(),
            cert: file(&format!("{own}.pem")),
            key: file(&format!("{own}.key")),
            ca: file("ca.pem"),
            allow: Vec::new(),
        };
        let started = self.hosts[i].inside(|| agent::start(settings, &Context::default()));
        started.unwrap().unwrap().1
    }

    /// 500 frames at 1,000 a second from a to b.
    fn plan(&self) -> String {
        let [mac_a, mac_b] = &self.macs;
        format!(
            "title = 'two agents'\n\
             [controller]\n\
             cert = '{0}/controller.pem'\nkey = '{0}/controller.key'\nca = '{0}/ca.pem'\n\
             [[agent]]\nname = 'west'\naddress = '10.77.0.2:8620'\n\
             [[agent]]\nname = 'east'\naddress = '10.77.1.2:8620'\n\
             [bed]\nmax_rate = '2000'\ndrain = '500ms'\n[run]\nloop = false\n\
             [[device]]\nname = 'dut'\nkind = 'external'\n\
             [device.ports]\n\
             a = {{ agent = 'west', interface = 'eth0', addresses = ['198.18.0.2/24'], mac = '{mac_a}' }}\n\
             b = {{ agent = 'east', interface = 'eth0', addresses = ['198.19.0.2/24'], mac = '{mac_b}' }}\n\
             [[procedure]]\nkind = 'fixed_load'\nloads = ['1k']\ntrial = '500ms'\n",
            self.folder.join("lab").display(),
        )
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
