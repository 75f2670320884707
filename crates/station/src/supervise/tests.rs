//! Units that start, fail, hang and are changed, in a simulated world; its laws.

use super::*;

/// What a unit of the simulation is: how it behaves is drawn, not set.
#[derive(Clone, Debug, PartialEq)]
struct Fake {
    port: u16,
    live: u8,
    fixed: u8,
}

impl UnitSpec for Fake {
    fn change(&self, new: &Fake) -> Change {
        match () {
            () if self == new => Change::Same,
            () if self.fixed != new.fixed => Change::Restart("fixed".into()),
            () => Change::Live { added: vec![], ended: vec![] },
        }
    }

    fn holds(&self) -> Vec<Resource> {
        vec![Resource::UdpPort { address: None, port: self.port }]
    }
}

/// A unit of the world, as it is: the supervisor learns of it by messages alone.
#[derive(Clone, Debug)]
struct Living {
    instance: Instance,
    spec: Arc<Fake>,
    /// It measures.
    open: bool,
    /// It neither makes progress nor ends.
    hangs: bool,
    asked: bool,
    hurried: bool,
    progress: u64,
}

struct World {
    seed: u64,
    random: fastrand::Rng,
    supervisor: Supervisor<Fake>,
    living: Vec<Living>,
    plan: Plan<Fake>,
    now: Time,
    gaps: Vec<Gap>,
    notices: Vec<(Time, Notice)>,
    /// Of each unit: until when it measured, if it measures nothing now though it is wanted.
    silent: BTreeMap<UnitId, Time>,
    /// What the gaps have to be.
    truth: Vec<(UnitId, Time, Time)>,
    starts: Vec<(UnitId, Time)>,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            seed,
            random: fastrand::Rng::with_seed(seed),
            supervisor: Supervisor::new(seed),
            living: Vec::new(),
            plan: Plan::default(),
            now: Time::from_nanos(1_000_000_000),
            gaps: Vec::new(),
            notices: Vec::new(),
            silent: BTreeMap::new(),
            truth: Vec::new(),
            starts: Vec::new(),
        }
    }

    /// Any plan of four units over five ports that can be run.
    fn draw_plan(&mut self) -> Plan<Fake> {
        let mut ports: Vec<u16> = (1..=5).collect();
        self.random.shuffle(&mut ports);
        let mut units = Vec::new();
        for (name, port) in ["a", "b", "c", "d"].into_iter().zip(ports) {
            if self.random.u8(..4) > 0 {
                let (live, fixed) = (self.random.u8(..2), self.random.u8(..8) / 7);
                units.push((UnitId::new(name), Fake { port, live, fixed }));
            }
        }
        Plan::of(units)
    }

    fn reload(&mut self, plan: Plan<Fake>) {
        let mut actions = Vec::new();
        self.supervisor.reload(self.now, plan.clone(), &mut actions).unwrap();
        let gone: Vec<UnitId> =
            self.silent.keys().filter(|id| plan.get(id).is_none()).cloned().collect();
        gone.iter().for_each(|id| self.measures(id));
        self.plan = plan;
        self.perform(actions);
    }

    /// A silence ends.
    fn measures(&mut self, id: &UnitId) {
        if let Some(from) = self.silent.remove(id) {
            self.truth.push((id.clone(), from, self.now));
        }
    }

    fn say(&mut self, instance: &Instance, happened: Happened) {
        let mut actions = Vec::new();
        self.supervisor.handle(self.now, instance, happened, &mut actions);
        self.perform(actions);
    }

    fn perform(&mut self, actions: Vec<Action<Fake>>) {
        for action in actions {
            match action {
                Action::Start(instance, spec) => {
                    let twice = self.living.iter().any(|l| l.instance.unit == instance.unit);
                    assert!(!twice, "seed {}: two of {}", self.seed, instance.unit);
                    self.starts.push((instance.unit.clone(), self.now));
                    self.living.push(Living {
                        instance,
                        spec,
                        open: false,
                        hangs: false,
                        asked: false,
                        hurried: false,
                        progress: 0,
                    });
                }
                Action::Adjust(instance, spec) => {
                    let living = self.living.iter_mut().find(|l| l.instance == instance).unwrap();
                    assert!(matches!(living.spec.change(&spec), Change::Live { .. }));
                    living.spec = spec;
                }
                Action::Stop(instance) => self.find(&instance).asked = true,
                Action::Hurry(instance) => self.find(&instance).hurried = true,
                Action::RecordGap(gap) => self.gaps.push(gap),
                Action::Raise(notice) => self.notices.push((self.now, notice)),
            }
            self.look();
        }
    }

    fn find(&mut self, instance: &Instance) -> &mut Living {
        self.living.iter_mut().find(|l| l.instance == *instance).unwrap()
    }

    /// Nothing is held twice.
    fn look(&self) {
        for (i, one) in self.living.iter().enumerate() {
            let met = self.living[i + 1..].iter().find(|two| one.spec.port == two.spec.port);
            assert!(met.is_none(), "seed {}: {one:?} and {met:?}", self.seed);
        }
    }

    /// Something happens to a unit that lives.
    fn happen(&mut self) {
        if self.living.is_empty() {
            return;
        }
        let at = self.random.usize(..self.living.len());
        let living = &mut self.living[at];
        let instance = living.instance.clone();
        let failed = || Exit::Failed("as the simulation wants it".into());
        match self.random.u8(..100) {
            _ if living.hangs => {
                if living.hurried && self.random.u8(..4) == 0 {
                    self.exit(at, Exit::Done);
                }
            }
            _ if living.asked => self.exit(at, Exit::Done),
            ..4 => living.hangs = true,
            4..10 => self.exit(at, failed()),
            _ if living.open => {
                living.progress += 1;
                let count = living.progress;
                self.say(&instance, Happened::Progress(count));
            }
            _ => {
                living.open = true;
                let wanted = self.plan.get(&instance.unit).is_some();
                if wanted {
                    self.measures(&instance.unit);
                }
                self.say(&instance, Happened::Started);
            }
        }
    }

    fn exit(&mut self, at: usize, exit: Exit) {
        let living = self.living.remove(at);
        let wanted = self.plan.get(&living.instance.unit).is_some();
        if wanted && living.open && !living.hangs {
            self.silent.entry(living.instance.unit.clone()).or_insert(self.now);
        }
        self.say(&living.instance, Happened::Exited(exit));
    }

    /// Goes on to the supervisor's next time-out, or by a second if that is earlier.
    fn pass(&mut self) {
        let second = self.now + 1_000_000_000;
        self.now =
            self.supervisor.poll_timeout().map_or(second, |due| due.min(second).max(self.now));
        let mut actions = Vec::new();
        self.supervisor.handle_timeout(self.now, &mut actions);
        self.perform(actions);
        assert!(
            self.supervisor.poll_timeout().is_none_or(|due| due > self.now),
            "seed {}: due again at once",
            self.seed
        );
    }
}

/// Units end in order, and no state is left.
#[test]
fn whatever_happens_nothing_is_held_twice_and_all_end() {
    for seed in 0..400 {
        let mut world = World::new(seed);
        for _ in 0..400 {
            match world.random.u8(..20) {
                0 => {
                    let plan = world.draw_plan();
                    world.reload(plan);
                }
                1..6 => world.pass(),
                _ => world.happen(),
            }
        }
        world.reload(Plan::default());
        for living in &mut world.living {
            assert!(living.asked, "seed {seed}: {living:?}");
            living.hangs = false;
        }
        while !world.living.is_empty() {
            world.exit(0, Exit::Done);
        }
        assert_eq!(world.supervisor.states().count(), 0, "seed {seed}");
        assert_eq!(world.supervisor.poll_timeout(), None, "seed {seed}");
    }
}

impl World {
    /// Drives units that start at once, work, fail and never hang for `steps` steps.
    fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            match self.random.u8(..20) {
                0 => {
                    let plan = self.draw_plan();
                    self.reload(plan);
                }
                1..6 => self.pass(),
                _ => self.happen(),
            }
        }
    }
}

/// A moment without measurement is in exactly one gap of its unit.
#[test]
fn gaps_of_a_unit_never_overlap_and_lie_in_order() {
    for seed in 0..400 {
        let mut world = World::new(seed);
        world.run(600);
        world.reload(Plan::default());
        let mut last: BTreeMap<UnitId, Time> = BTreeMap::new();
        for gap in &world.gaps {
            assert!(gap.from <= gap.to && !gap.why.is_empty(), "seed {seed}: {gap:?}");
            let before = last.insert(gap.unit.clone(), gap.to);
            assert!(before.is_none_or(|to| to <= gap.from), "seed {seed}: {gap:?}");
        }
    }
}

/// What was silent after an end that the world knows of is covered by one gap.
#[test]
fn every_silence_is_covered_by_one_gap() {
    let mut silences = 0;
    for seed in 0..400 {
        let mut world = World::new(seed);
        world.run(600);
        world.reload(Plan::default());
        for (unit, from, to) in world.truth.iter().filter(|(_, from, to)| from < to) {
            let covers = |gap: &&Gap| gap.unit == *unit && gap.from <= *from && *to <= gap.to;
            assert_eq!(world.gaps.iter().filter(covers).count(), 1, "seed {seed}: {unit} {from:?}");
            silences += 1;
        }
    }
    assert!(silences > 1_000, "the simulation tries little: {silences}");
}

/// One trouble is told once.
#[test]
fn a_unit_that_fails_again_and_again_is_told_once_and_its_delays_grow() {
    let mut world = World::new(7);
    world.reload(Plan::of([(UnitId::new("a"), Fake { port: 1, live: 0, fixed: 0 })]));
    let hour = Time::from_nanos(3_600_000_000_000);
    while world.now < hour {
        while !world.living.is_empty() {
            world.exit(0, Exit::Failed("no such interface".into()));
        }
        world.pass();
    }
    let [(_, Notice::Failed(unit, why))] = world.notices.as_slice() else {
        panic!("{:?}", world.notices)
    };
    assert_eq!((unit.as_str(), why.as_str()), ("a", "no such interface"));
    let waits: Vec<i64> = world.starts.windows(2).map(|w| w[1].1 - w[0].1).collect();
    let second = 1_000_000_000;
    for (n, wait) in waits.iter().enumerate() {
        let least = second * 60.min(1_i64.checked_shl(n as u32).unwrap_or(60).max(1));
        let least = if n > 6 { 60 * second } else { least };
        assert!((least..=least + least / 4 + second).contains(wait), "wait {n}: {wait} ns");
    }
    // It comes to itself, and people hear of that once.
    let instance = loop {
        match world.living.first() {
            Some(living) => break living.instance.clone(),
            None => world.pass(),
        }
    };
    world.living[0].open = true;
    let began = world.now;
    world.say(&instance, Happened::Started);
    for count in 1..2_000 {
        world.pass();
        world.say(&instance, Happened::Progress(count));
    }
    let (at, last) = world.notices.last().unwrap();
    assert_eq!(*last, Notice::Recovered(UnitId::new("a")));
    assert_eq!((world.notices.len(), *at - began), (2, SETTLED.as_nanos() as i64));
    let [gap] = world.gaps.as_slice() else { panic!("{:?}", world.gaps) };
    assert_eq!((gap.to, gap.why.as_str()), (began, "no such interface"));
}

/// A frozen unit is found, asked to end, and started again once it has.
#[test]
fn a_unit_without_progress_is_stopped_and_started_again() {
    let mut world = World::new(1);
    world.reload(Plan::of([(UnitId::new("a"), Fake { port: 1, live: 0, fixed: 0 })]));
    let first = world.living[0].instance.clone();
    world.living[0].open = true;
    world.say(&first, Happened::Started);
    world.say(&first, Happened::Progress(1));
    let last = world.now;
    while !world.living[0].asked {
        world.pass();
    }
    assert_eq!(world.now - last, STALL.as_nanos() as i64);
    while !world.living[0].hurried {
        world.pass();
    }
    let stuck = Notice::Stuck(UnitId::new("a"));
    assert_eq!(world.notices.last().map(|(_, notice)| notice), Some(&stuck));
    assert_eq!(world.starts.len(), 1, "what it holds is not free");
    world.exit(0, Exit::Done);
    while world.living.is_empty() {
        world.pass();
    }
    world.living[0].open = true;
    let second = world.living[0].instance.clone();
    // What the first says late is not the second's.
    world.say(&first, Happened::Started);
    assert!(world.gaps.is_empty());
    world.say(&second, Happened::Started);
    let [gap] = world.gaps.as_slice() else { panic!("{:?}", world.gaps) };
    assert_eq!((gap.from, gap.to), (last, world.now));
}

/// The time in which it waits for its last replies is time without a probe.
#[test]
fn a_gap_begins_when_a_unit_is_asked_to_end() {
    let mut world = World::new(1);
    let fake = |fixed| Plan::of([(UnitId::new("a"), Fake { port: 1, live: 0, fixed })]);
    world.reload(fake(0));
    world.living[0].open = true;
    let first = world.living[0].instance.clone();
    world.say(&first, Happened::Started);
    (0..10).for_each(|_| world.pass());
    world.say(&first, Happened::Progress(1));
    let asked = world.now;
    world.reload(fake(1));
    assert!(world.living[0].asked);
    (0..3).for_each(|_| world.pass());
    assert!(world.now > asked);
    world.exit(0, Exit::Done);
    while world.living.is_empty() {
        world.pass();
    }
    world.living[0].open = true;
    let second = world.living[0].instance.clone();
    world.say(&second, Happened::Started);
    let [gap] = world.gaps.as_slice() else { panic!("{:?}", world.gaps) };
    assert_eq!((gap.from, gap.to), (asked, world.now));
}

/// Settings that cannot be are not tried again and again; others are tried at once.
#[test]
fn a_refused_unit_waits_for_other_settings() {
    let mut world = World::new(1);
    let fake = |fixed| Plan::of([(UnitId::new("a"), Fake { port: 1, live: 0, fixed })]);
    world.reload(fake(0));
    world.exit(0, Exit::Refused("engine.iface: there is no eth9".into()));
    (0..100).for_each(|_| world.pass());
    world.reload(fake(0));
    assert!(world.living.is_empty() && world.starts.len() == 1);
    world.reload(fake(1));
    assert_eq!(world.starts.len(), 2);
}

/// Two that exchange their ports in two reloads, while a third still holds one of them.
#[test]
fn reloads_during_a_reload_do_not_block_each_other() {
    let mut world = World::new(1);
    let fake = |port, live| Fake { port, live, fixed: 0 };
    let plan = |units: &[(&str, Fake)]| {
        Plan::of(units.iter().map(|(name, fake)| (UnitId::new(name), fake.clone())))
    };
    let all = [("a", fake(1, 0)), ("b", fake(2, 0)), ("c", fake(3, 0)), ("d", fake(4, 0))];
    world.reload(plan(&all));
    let begun: Vec<Instance> = world.living.iter().map(|l| l.instance.clone()).collect();
    for instance in &begun {
        world.find(instance).open = true;
        world.say(instance, Happened::Started);
    }
    world.reload(plan(&[("a", fake(3, 1)), ("b", fake(4, 1))]));
    world.reload(plan(&[("a", fake(2, 2)), ("b", fake(1, 2))]));
    for _ in 0..4 {
        if let Some(at) = world.living.iter().position(|l| l.asked) {
            world.exit(at, Exit::Done);
        }
    }
    let port =
        |name| world.living.iter().find(|l| l.instance.unit.as_str() == name).unwrap().spec.port;
    assert_eq!((port("a"), port("b")), (2, 1));
}
