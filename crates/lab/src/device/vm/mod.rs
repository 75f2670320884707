//! A Linux router in a virtual machine: qemu with virtio network cards on tap devices, each
//! joined to a port by the host's bridge, as hosts of virtual network functions have it.
//!
//! The guest is Debian's cloud kernel with a memory file system of busybox and the modules
//! for virtio: it routes within seconds of its start. Packages come from Debian's archive,
//! once ([`image`]). KVM is used where a guest starts with it, else qemu translates (TCG).

mod cpio;
mod image;

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use sonde_results::trial::Side;
use sonde_results::units::format_mac;

use self::image::Image;
use super::console::Console;
use super::context::DeviceContext;
use super::counter::DeviceCounter;
use super::counters::{guest_counters, guest_script};
use super::function::Function;
use super::ports::{PORTS, disable_offloads};
use super::{addresses, bridge};
use crate::{AddressFamily, LabError};

/// The guest, while it runs, and the version of qemu.
#[derive(Default)]
pub(crate) struct Vm {
    guest: Option<Guest>,
    version: String,
}

struct Guest {
    console: Console,
    accelerator: &'static str,
    kernel: String,
}

impl Vm {
    /// Starts qemu and waits for the guest to route.
    fn boot(
        &self,
        at: &DeviceContext,
        image: &Image,
        accelerator: &'static str,
    ) -> Result<Guest, LabError> {
        let mut files = image.files()?;
        files.push(cpio::File::program("init", init()));
        files.push(cpio::File::program("configure", configure(at)));
        let archive = at.folder.join("initrd");
        let made = std::fs::create_dir_all(&at.folder)
            .and_then(|()| std::fs::write(&archive, cpio::archive(&files)));
        made.map_err(|e| super::run_dir::file_error(&archive, e))?;

        let mut command = at.host.command(QEMU);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-smp", "1"]);
        command.args(["-machine", &format!("pc,accel={accelerator}")]);
        command.args(["-cpu", if accelerator == "kvm" { "host" } else { "max" }]);
        command.args(["-m", &MEMORY_MIB.to_string()]);
        if at.spec.hugepages {
            let memory = format!(
                "memory-backend-memfd,id=memory,size={MEMORY_MIB}M,hugetlb=on,hugetlbsize=2M,prealloc=on"
            );
            command.args(["-object", &memory, "-machine", "memory-backend=memory"]);
        }
        command.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&archive);
        command.args(["-append", "console=ttyS0 quiet loglevel=3 panic=-1", "-serial", "stdio"]);
        for (n, side) in at.sides.iter().enumerate() {
            let (tap, mac) = (TAPS[n], format_mac(side.mac));
            command.args(["-netdev", &format!("tap,id=n{n},ifname={tap},script=no,downscript=no")]);
            command.args(["-device", &format!("virtio-net-pci,netdev=n{n},mac={mac},romfile=")]);
        }
        let patience = if accelerator == "kvm" { KVM_PATIENCE } else { PATIENCE };
        let console = Console::start("the virtual machine", command, patience)?;
        let kernel = console.ask("version", PATIENCE)?.join(" ");
        Ok(Guest { console, accelerator, kernel })
    }
}

impl Function for Vm {
    fn start(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        let version = at.host.run(&[QEMU, "--version"]);
        let version = version.map_err(|e| e.or_missing(QEMU, PACKAGE))?;
        self.version = version.lines().next().unwrap_or_default().to_owned();
        if at.spec.hugepages {
            enough_hugepages()?;
        }
        let image = Image::get()?;
        for (n, port) in PORTS.into_iter().enumerate() {
            // The port's MAC address is the guest's; the host's own end takes another.
            let [first, _, rest @ ..] = at.sides[n].mac;
            let other = format_mac([first, 1, rest[0], rest[1], rest[2], rest[3]]);
            let mtu = at.spec.mtu;
            at.batch(&format!(
                "link set {port} address {other}\ntuntap add {tap} mode tap\n\
                 link set {tap} mtu {mtu} up\n",
                tap = TAPS[n],
            ))?;
            disable_offloads(&at.host, TAPS[n])?;
            bridge::join(at, BRIDGES[n], &[port, TAPS[n]])?;
        }
        if kvm_may_work() {
            match self.boot(at, &image, "kvm") {
                Ok(guest) => {
                    self.guest = Some(guest);
                    return Ok(());
                }
                Err(_) => KVM_FAILED.get_or_init(|| ()),
            };
        }
        self.guest = Some(self.boot(at, &image, "tcg")?);
        Ok(())
    }

    fn stop(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        self.guest = None;
        let mut batch = String::new();
        for name in BRIDGES.iter().chain(&TAPS) {
            batch += &format!("link del {name}\n");
        }
        at.batch(&batch)
    }

    /// The guest starts anew; the machine around it stays.
    fn restart(&mut self, _at: &DeviceContext) -> Result<(), LabError> {
        match &self.guest {
            Some(guest) => guest.console.ask_until_ready("reboot", PATIENCE),
            None => Ok(()),
        }
    }

    fn counters(&self, at: &DeviceContext, all: &mut Vec<DeviceCounter>) -> Result<(), LabError> {
        let Some(guest) = &self.guest else { return Ok(()) };
        let text = guest.console.ask("counters", PATIENCE)?.join("\n");
        guest_counters(&text, &format!("{} guest", at.name), Side::Device, all);
        Ok(())
    }

    fn facts(
        &self,
        at: &DeviceContext,
        facts: &mut BTreeMap<String, String>,
    ) -> Result<(), LabError> {
        facts.insert("qemu".into(), self.version.clone());
        if let Some(guest) = &self.guest {
            facts.insert(at.fact("guest kernel"), guest.kernel.clone());
            facts.insert(at.fact("accelerator"), guest.accelerator.into());
        }
        let kind = if at.spec.hugepages { "huge pages of 2 MiB" } else { "ordinary pages" };
        facts.insert(at.fact("guest memory"), format!("{MEMORY_MIB} MiB, {kind}"));
        facts.insert(at.fact("guest neighbours"), "resolved at its start, kept for a day".into());
        Ok(())
    }

    fn processes(&self) -> Vec<u32> {
        self.guest.iter().map(|g| g.console.pid()).collect()
    }
}

/// Whether the processor can run guests by itself; /dev/kvm alone says nothing of that (a
/// nested hypervisor may offer it to guests made for it only).
fn kvm_may_work() -> bool {
    let capable = std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| {
        let flags = text.lines().find(|l| l.starts_with("flags"));
        flags.is_some_and(|l| l.split_whitespace().any(|f| f == "vmx" || f == "svm"))
    });
    let open = std::fs::File::options().read(true).write(true).open("/dev/kvm").is_ok();
    capable && open && KVM_FAILED.get().is_none()
}

fn enough_hugepages() -> Result<(), LabError> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = text
        .lines()
        .find_map(|l| l.strip_prefix("HugePages_Free:"))
        .and_then(|n| n.trim().parse::<u64>().ok())
        .unwrap_or(0);
    let needed = MEMORY_MIB / 2;
    if free >= needed {
        return Ok(());
    }
    Err(LabError::Bed(format!(
        "a virtual machine needs {needed} free huge pages of 2 MiB, and there are {free}: \
         'sysctl vm.nr_hugepages={needed}' gives them"
    )))
}

/// What the guest runs first.
fn init() -> String {
    let modules = image::MODULES.join(" ");
    let counters = guest_script();
    format!(
        "#!/bin/busybox sh\n\
         /bin/busybox --install -s /bin\n\
         export PATH=/bin\n\
         mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n\
         stty -echo\n\
         for m in {modules}; do insmod /modules/$m.ko; done\n\
         . /configure\n\
         echo sonde: ready\n\
         while read -r question; do\n\
         case \"$question\" in\n\
         counters) ({counters}) ;;\n\
         version) uname -sr ;;\n\
         reboot) reboot -f ;;\n\
         esac\n\
         echo sonde: end\n\
         done\n\
         poweroff -f\n"
    )
}

/// The guest's addresses and routes. Neighbours are asked for at once, and then believed for
/// a day (RFC 4861, section 6.3.2, ReachableTime).
fn configure(at: &DeviceContext) -> String {
    let mut text = String::from(
        "ip link set lo up\n\
         for f in 4 6; do \
         echo 86400000 > /proc/sys/net/ipv$f/neigh/default/base_reachable_time_ms; done\n\
         echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad\n\
         echo 0 > /proc/sys/net/ipv6/conf/default/router_solicitations\n\
         echo 0 > /proc/sys/net/ipv4/conf/all/send_redirects\n",
    );
    for (n, side) in at.sides.iter().enumerate() {
        let (mac, mtu) = (format_mac(side.mac), at.spec.mtu);
        text += &format!(
            "for d in /sys/class/net/*; do \
             [ \"$(cat $d/address)\" = {mac} ] && i{n}=${{d##*/}}; done\n\
             [ -n \"$i{n}\" ] || {{ echo no card {mac}; poweroff -f; }}\n\
             for f in 4 6; do \
             echo 86400000 > /proc/sys/net/ipv$f/neigh/$i{n}/base_reachable_time_ms; done\n\
             echo 0 > /proc/sys/net/ipv6/conf/$i{n}/accept_dad\n\
             ip link set $i{n} mtu {mtu} up\n"
        );
        for r in &side.routes {
            text += &format!("ip addr add {}/{} dev $i{n}\n", r.own, r.prefix);
            text += &format!("ip route add {} via {} dev $i{n}\n", r.network, r.next_hop);
        }
    }
    text += "echo 1 > /proc/sys/net/ipv4/ip_forward\n\
             echo 1 > /proc/sys/net/ipv6/conf/all/forwarding\n";
    for (n, side) in at.sides.iter().enumerate() {
        for r in &side.routes {
            // Of two machines in series the second is not there yet when the first asks.
            let own = r.next_hop == addresses::tester(n, r.family);
            let tries = if own { "1 2 3 4 5" } else { "1" };
            let ping = if r.family == AddressFamily::V4 { "ping" } else { "ping6" };
            let hop = r.next_hop;
            text += &format!(
                "for t in {tries}; do {ping} -c 1 -W 1 {hop} > /dev/null 2>&1 && break; done\n"
            );
        }
    }
    text
}

const QEMU: &str = "qemu-system-x86_64";
const PACKAGE: &str = "qemu-system-x86";
const TAPS: [&str; 2] = ["tap0", "tap1"];
const BRIDGES: [&str; 2] = ["br0", "br1"];
const MEMORY_MIB: u64 = 256;
/// For a translated guest on a busy host.
const PATIENCE: Duration = Duration::from_secs(180);
/// A guest that KVM runs is there in two or three seconds, if at all.
const KVM_PATIENCE: Duration = Duration::from_secs(20);
/// Set when a guest did not start by KVM: it is not tried again in this process.
static KVM_FAILED: OnceLock<()> = OnceLock::new();
