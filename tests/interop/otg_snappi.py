"""Drives `sonde otg` with snappi, unchanged as PyPI has it: two ports joined by a virtual cable,
and a router between two others. Run by root; makes its own namespaces.

    otg_snappi.py SONDE
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import snappi

SONDE = sys.argv[1]
MARK = f"sonde-otg-{os.getpid()}"
HOSTS = ("left", "right", "router")


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def name(host):
    return f"{MARK}-{host}"


def sysctl(host, setting):
    ip("netns", "exec", name(host), "sysctl", "-qw", setting)


def mac(host, interface):
    text = subprocess.run(
        ["ip", "-j", "-netns", name(host), "link", "show", interface],
        check=True, capture_output=True, text=True).stdout
    return json.loads(text)[0]["address"]


def make_bed():
    for host in HOSTS:
        ip("netns", "add", name(host))
        # No frames but ours: ports count everything.
        for scope in ("all", "default"):
            sysctl(host, f"net.ipv6.conf.{scope}.disable_ipv6=1")
    for a, a_if, b, b_if in (("left", "cable", "right", "cable"), ("left", "eth0", "router", "west"),
                             ("right", "eth0", "router", "east")):
        ip("-netns", name(a), "link", "add", a_if, "type", "veth", "peer", "name", b_if,
           "netns", name(b))
        ip("-netns", name(a), "link", "set", a_if, "up")
        ip("-netns", name(b), "link", "set", b_if, "up")
    router = name("router")
    ip("-netns", router, "address", "add", "198.18.0.1/24", "dev", "west")
    ip("-netns", router, "address", "add", "198.19.0.1/24", "dev", "east")
    ip("-netns", router, "neighbour", "add", "198.19.0.2", "dev", "east", "lladdr",
       mac("right", "eth0"))
    sysctl("router", "net.ipv4.ip_forward=1")


def remove_bed():
    for host in HOSTS:
        subprocess.run(["ip", "netns", "del", name(host)], check=False)


def start_sonde(runs):
    """The server, and where it listens. It keeps runs of plans in the folder."""
    server = subprocess.Popen([SONDE, "otg", "--listen", "127.0.0.1:0", "--runs", runs],
                              stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if " at http://" in line:
            # With the token: snappi takes it from the address.
            return server, line.split(" at ")[1].split(",")[0]
    raise SystemExit("sonde otg did not start")


def opened(address, path, body=None):
    """Without snappi: urllib takes no token from an address."""
    token, rest = address.removeprefix("http://sonde:").split("@")
    return urllib.request.urlopen(urllib.request.Request(
        f"http://{rest}{path}", data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {token}"}))


def wait_for(what, condition, patience=30.0):
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"waited {patience} s for {what}")
        time.sleep(0.05)


def transmit(api, state, names=()):
    control = api.control_state()
    control.traffic.flow_transmit.state = state
    if names:
        control.traffic.flow_transmit.flow_names = list(names)
    api.set_control_state(control)


def flow_metrics(api, *names):
    request = api.metrics_request()
    request.flow.flow_names = list(names)
    return {m.name: m for m in api.get_metrics(request).flow_metrics}


def port_metrics(api):
    request = api.metrics_request()
    request.port.port_names = []
    return {m.name: m for m in api.get_metrics(request).port_metrics}


def stopped(api, *names):
    return all(m.transmit == m.STOPPED for m in flow_metrics(api, *names).values())


def settled(api, *names):
    return stopped(api, *names) and all(
        m.frames_rx == m.frames_tx for m in flow_metrics(api, *names).values())


def refused(call, part):
    try:
        call()
    except Exception as error:  # snappi raises Exception itself
        assert part in str(error), f"'{part}' is not in: {error}"
        return
    raise SystemExit(f"was not refused: {part}")


def flow(config, flow_name, tx, rx, packets):
    f = config.flows.add(name=flow_name)
    f.tx_rx.port.tx_name = tx
    f.tx_rx.port.rx_names = [rx]
    f.duration.fixed_packets.packets = packets
    f.metrics.enable = True
    f.metrics.loss = True
    f.metrics.timestamps = True
    f.metrics.latency.enable = True
    f.metrics.latency.mode = f.metrics.latency.CUT_THROUGH
    return f


def addresses(f, src_mac, dst_mac, src, dst):
    ethernet, ipv4, udp = f.packet.ethernet().ipv4().udp()
    ethernet.src.value, ethernet.dst.value = src_mac, dst_mac
    ipv4.src.increment.start, ipv4.src.increment.count = src, 4
    ipv4.dst.value = dst
    udp.src_port.increment.start, udp.src_port.increment.count = 5000, 7
    udp.dst_port.values = [7, 9]


def cable(api):
    """Several flows both ways over a cable: every frame arrives, once."""
    config = api.config()
    config.ports.port(name="a", location=f"{name('left')}/cable")
    config.ports.port(name="b", location=f"{name('right')}/cable")
    west, east = mac("left", "cable"), mac("right", "cable")
    there = flow(config, "there", "a", "b", 2000)
    addresses(there, west, east, "198.18.0.10", "198.19.0.2")
    there.rate.pps, there.size.fixed = 4000, 128
    back = flow(config, "back", "b", "a", 1200)
    addresses(back, east, west, "198.19.0.10", "198.18.0.2")
    back.rate.mbps = 10
    back.size.weight_pairs.predefined = back.size.weight_pairs.IMIX
    tcp = flow(config, "tcp", "a", "b", 500)
    ethernet, vlan, ipv6, segment = tcp.packet.ethernet().vlan().ipv6().tcp()
    vlan.id.value = 7
    ipv6.src.value, ipv6.dst.value = "2001:2::1", "2001:2::2"
    segment.ctl_syn.value = 1
    tcp.rate.pps, tcp.size.increment.start, tcp.size.increment.end = 1000, 200, 300
    bursts = flow(config, "bursts", "a", "b", 1)
    bursts.packet.ethernet()
    bursts.duration.burst.bursts, bursts.duration.burst.packets = 10, 25
    bursts.duration.burst.inter_burst_gap.microseconds = 5000
    bursts.rate.pps = 50_000
    api.set_config(config)
    assert api.get_config().serialize() == config.serialize()

    transmit(api, "start")
    wait_for("all four flows", lambda: settled(api))
    metrics = flow_metrics(api)
    for f, frames in (("there", 2000), ("back", 1200), ("tcp", 500), ("bursts", 250)):
        m = metrics[f]
        assert (m.frames_tx, m.frames_rx, m.loss) == (frames, frames, 0), m
        assert 0 < m.latency.minimum_ns <= m.latency.average_ns <= m.latency.maximum_ns, m
        assert m.timestamps.first_timestamp_ns < m.timestamps.last_timestamp_ns, m
    assert (metrics["there"].port_tx, metrics["there"].port_rx) == ("a", "b")
    assert metrics["there"].bytes_tx == metrics["there"].bytes_rx == 2000 * 128
    # 1,200 frames are 100 rounds of 7 x 64, 4 x 570 and 1 x 1518 octets.
    assert metrics["back"].bytes_rx == 100 * (7 * 64 + 4 * 570 + 1518), metrics["back"]
    ports = port_metrics(api)
    assert ports["a"].frames_tx == ports["b"].frames_rx == 2750, ports
    assert ports["b"].frames_tx == ports["a"].frames_rx == 1200, ports
    assert ports["a"].link == "up", ports

    # Counters begin again with start, and of the named flows only.
    transmit(api, "start", ["bursts"])
    wait_for("bursts again", lambda: settled(api, "bursts"))
    metrics = flow_metrics(api)
    assert (metrics["bursts"].frames_rx, metrics["there"].frames_rx) == (250, 2000), metrics


def capture(api):
    """What comes is captured, layer 1 is taken, and flows carry VXLAN."""
    config = api.config()
    config.ports.port(name="a", location=f"{name('left')}/cable")
    config.ports.port(name="b", location=f"{name('right')}/cable")
    config.layer1.add(name="ly", port_names=["a", "b"], speed="speed_1_gbps")
    config.captures.add(name="ca", port_names=["a", "b"], format="pcap")
    f = flow(config, "tunnel", "a", "b", 40)
    _, ipv4, _, vxlan, _, inner, _ = f.packet.ethernet().ipv4().udp().vxlan().ethernet().ipv4().tcp()
    for ip in (ipv4, inner):
        ip.src.value, ip.dst.value = "198.18.0.1", "198.19.0.1"
    vxlan.vni.values = [1000, 1001]
    f.size.fixed = 256
    warnings = api.set_config(config).warnings
    assert any("speed is not set" in w for w in warnings), warnings
    state = api.control_state()
    state.port.capture.state = state.port.capture.START
    api.set_control_state(state)
    transmit(api, "start")
    wait_for("the tunnel", lambda: settled(api))
    request = api.capture_request()
    request.port_name = "b"
    octets = api.get_capture(request).read()
    # A header of 24 octets, and 16 before each of 40 frames.
    assert len(octets) == 24 + 40 * (16 + 256), len(octets)
    vnis = [octets[24 + i * 272 + 16 + 46:][:3].hex() for i in range(2)]
    assert vnis == ["0003e8", "0003e9"], vnis


def pause(api):
    """A flow without end is paused, goes on where it was, and is stopped."""
    config = api.config()
    config.ports.port(name="a", location=f"{name('left')}/cable")
    config.ports.port(name="b", location=f"{name('right')}/cable")
    f = flow(config, "endless", "a", "b", 1)
    f.duration.choice = f.duration.CONTINUOUS
    f.rate.pps = 2000
    api.set_config(config)
    transmit(api, "start")
    count = lambda: flow_metrics(api)["endless"].frames_rx
    wait_for("frames", lambda: count() > 100)
    transmit(api, "pause")
    wait_for("the last of them", lambda: flow_metrics(api)["endless"].loss == 0)
    held = flow_metrics(api)["endless"]
    assert held.transmit == held.PAUSED and held.frames_rx == held.frames_tx, held
    transmit(api, "resume")
    wait_for("more frames", lambda: count() > held.frames_rx + 100)
    transmit(api, "stop")
    wait_for("the end", lambda: settled(api))


def router(api, address):
    """Through a router that also loses what it has no route for."""
    config = api.config()
    config.ports.port(name="w", location=f"{name('left')}/eth0")
    config.ports.port(name="e", location=f"{name('right')}/eth0")
    through = flow(config, "through", "w", "e", 1000)
    addresses(through, mac("left", "eth0"), mac("router", "west"), "198.18.0.10", "198.19.0.2")
    through.rate.pps = 5000
    nowhere = flow(config, "nowhere", "w", "e", 400)
    addresses(nowhere, mac("left", "eth0"), mac("router", "west"), "198.18.0.10", "198.19.255.2")
    nowhere.rate.pps = 2000
    api.set_config(config)
    transmit(api, "start")
    wait_for("the router", lambda: stopped(api) and settled(api, "through"))
    metrics = flow_metrics(api)
    through, nowhere = metrics["through"], metrics["nowhere"]
    assert (through.frames_tx, through.frames_rx, through.loss) == (1000, 1000, 0), through
    assert (nowhere.frames_tx, nowhere.frames_rx, nowhere.loss) == (400, 0, 100), nowhere

    # What the model has no place for.
    with opened(address, "/sonde/v1/flows") as answer:
        flows = {f["name"]: f for f in json.load(answer)["flows"]}
    rx = flows["through"]["rx"][0]
    assert (rx["frames"], rx["lost"], rx["duplicates"], rx["reordered"]) == (1000, 0, 0, 0), rx
    latency = rx["latency_ns"]
    assert latency["min"] <= latency["p50"] <= latency["p99"] <= latency["max"], latency
    # 1,000 values do not carry a 99.9th percentile: no ten lie beyond it.
    assert "p99_9" not in latency and flows["nowhere"]["rx"][0]["lost"] == 400, flows


def devices(api):
    """Two devices, one on each side of the router: gateways are found, and traffic is routed."""
    config = api.config()
    config.ports.port(name="w", location=f"{name('left')}/eth0")
    config.ports.port(name="e", location=f"{name('right')}/eth0")
    for port, net, own in (("w", "198.18.0", "02:00:00:00:00:01"),
                           ("e", "198.19.0", "02:00:00:00:00:02")):
        device = config.devices.add(name=f"device-{port}")
        ethernet = device.ethernets.add(name=f"ethernet-{port}", mac=own)
        ethernet.connection.port_name = port
        ethernet.ipv4_addresses.add(name=f"ipv4-{port}", address=f"{net}.20", gateway=f"{net}.1")
    for flow_name, tx, rx in (("there", "device-w", "ipv4-e"), ("back", "ethernet-e", "device-w")):
        f = config.flows.add(name=flow_name)
        f.tx_rx.device.tx_names, f.tx_rx.device.rx_names = [tx], [rx]
        ethernet, _, _ = f.packet.ethernet().ipv4().udp()
        assert ethernet.dst.choice == ethernet.dst.AUTO
        f.duration.fixed_packets.packets, f.rate.pps = 800, 4000
        f.metrics.enable = f.metrics.loss = True
    api.set_config(config)
    protocols = api.control_state()
    request = api.states_request()
    request.ipv4_neighbors.ethernet_names = ["ethernet-w", "ethernet-e"]
    rows = lambda: api.get_states(request).ipv4_neighbors
    wait_for("the gateways", lambda: all(n.link_layer_address for n in rows()))
    macs = {n.ethernet_name: (n.ipv4_address, n.link_layer_address) for n in rows()}
    assert macs == {"ethernet-w": ("198.18.0.1", mac("router", "west")),
                    "ethernet-e": ("198.19.0.1", mac("router", "east"))}, macs
    transmit(api, "start")
    wait_for("both flows", lambda: settled(api))
    for m in flow_metrics(api).values():
        assert (m.frames_tx, m.frames_rx, m.loss) == (800, 800, 0), m
    protocols.protocol.all.state = protocols.protocol.all.STOP
    api.set_control_state(protocols)
    assert not any(n.link_layer_address for n in rows()), rows()


PLAN = """
title = "interop"
[bed]
engine = "af_packet"
max_rate = "5k"
drain = "100ms"
[run]
loop = false
attempts = 12
back_off = "20ms"
[[device]]
name = "router"
kind = "router"
[[procedure]]
kind = "fixed_load"
loads = ["1000"]
trial = "200ms"
"""


def ask(address, path, body=None):
    try:
        with opened(address, f"/sonde/v1/runs{path}", body) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def plan(address, runs):
    """A whole plan of sonde bench: begun, waited for, read, reported."""
    status, text = ask(address, "", {"plan": PLAN})
    assert status == 201, text
    run = f"/{json.loads(text)['id']}"
    state = lambda: json.loads(ask(address, run)[1])
    wait_for("the run", lambda: state()["state"] != "running", 60.0)
    assert state()["state"] == "finished" and not state()["errors"], state()
    (found,) = state()["findings"]
    assert found["id"] == "fixed_load/router/64/1000frames/s" and found["finding"]["values"], found
    measurements = json.loads(ask(address, f"{run}/measurements")[1])["measurements"]
    assert measurements[0]["finding"] == found["finding"], measurements
    assert json.loads(ask(address, f"{run}/trials")[1])["trials"], run
    status, page = ask(address, f"{run}/report")
    assert status == 200 and "interop" in page, page
    subprocess.run([SONDE, "report", runs + run], check=True, stdout=subprocess.DEVNULL)
    status, text = ask(address, "", {"plan": PLAN + "[[condition]]\nname = 'c'\ncommand = 'id'\n"})
    assert status == 403 and "shell" in text, text


def refusals(api, address):
    """What Sonde does not do is refused in words, and the version is one that snappi takes."""
    def config():
        c = api.config()
        c.ports.port(name="a", location=f"{name('left')}/cable")
        c.ports.port(name="b", location=f"{name('right')}/cable")
        return c

    c = config()
    c.ports.add(name="c", location="no-such-interface")
    refused(lambda: api.set_config(c), "no-such-interface")
    c = config()
    addresses(flow(c, "f", "a", "b", 1), "02:00:00:00:00:01", "02:00:00:00:00:02", "10.0.0.1",
              "10.0.0.2")
    refused(lambda: api.set_config(c), "RFC 6815")
    c = config()
    c.devices.add(name="d").bgp.router_id = "198.18.0.2"
    refused(lambda: api.set_config(c), "`bgp` is not supported")
    c = config()
    flow(c, "f", "a", "b", 1).packet.ethernet().ppp()
    refused(lambda: api.set_config(c), "`ppp` is not supported")
    c = config()
    flow(c, "f", "a", "b", 1).packet.ethernet()[-1].ether_type.value = 0x0806
    refused(lambda: api.set_config(c), "--allow-ethertype arp")
    c = config()
    c.ports.add(name="c", location="lo")
    refused(lambda: api.set_config(c), "loopback")
    stranger = snappi.api(location=f"http://{address.split('@')[1]}")
    refused(lambda: stranger.get_config(), "token")
    c = config()
    flow(c, "f", "a", "x", 1)
    refused(lambda: api.set_config(c), "there is no port")
    refused(lambda: transmit(api, "start", ["gone"]), "configured")
    control = api.control_state()
    control.port.link.state = control.port.link.DOWN
    refused(lambda: api.set_control_state(control), "port")
    api.check_version_compatibility()


def main():
    make_bed()
    server, runs = None, tempfile.TemporaryDirectory()
    try:
        server, address = start_sonde(runs.name)
        api = snappi.api(location=address, version_check=True)
        for test in (lambda: cable(api), lambda: capture(api), lambda: pause(api), lambda: router(api, address),
                     lambda: devices(api),
                     lambda: plan(address, runs.name), lambda: refusals(api, address)):
            test()
        server.terminate()
        assert server.wait(timeout=20) == 0
    finally:
        if server:
            server.kill()
        remove_bed()
        runs.cleanup()
    print("otg: snappi drives Sonde: cable, capture, pause, router, devices, plan, refusals")


main()
