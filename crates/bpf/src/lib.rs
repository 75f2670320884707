//! Sonde's eBPF programs and their loaders.
//!
//! The programs are C (`c/`), compiled by `build.rs`; each loader is one file here.
//! A program is attached by a bpf link that this process owns: when the process
//! ends, however it ends, the kernel detaches the program.

pub mod doctor;
pub mod error;
pub mod flow;
pub mod forward;
mod load;
pub mod load_gen;
mod mapping;
pub mod reflect;
pub mod rtt;
mod settings;
pub mod stamper;
pub mod xsk;

pub use doctor::{BpfSupport, bpf_support};
pub use error::BpfError;
pub use flow::{FlowCounters, FlowInput, FlowInterface, FlowProgram, FlowRing};
pub use forward::{ForwardCounters, ForwardPort, Forwarder};
pub use load::{AttachMode, TestRun};
pub use load_gen::{
    Expected, FlowHeader, XdpAnalyser, XdpAnalyserConfig, XdpGenerator, XdpGeneratorConfig, XdpPace,
};
pub use reflect::{
    Cost, KernelReflector, KernelReflectorConfig, ReflectorCounters, SharedSessions,
};
pub use rtt::{
    RttAttached, RttAttachment, RttBench, RttConfig, RttEvents, RttGroupBy, RttHook, RttProgram,
    RttProtocols, RttSide, RttTestPacket, RttTraffic,
};
pub use stamper::{PacketStamp, StampPoint, Stamper};
pub use xsk::{RxMeta, XskCounters, XskFilter, XskProgram};

/// What `build.rs` generates from the C sources.
mod skel {
    #[allow(missing_docs, clippy::all)]
    pub mod flow {
        include!(concat!(env!("OUT_DIR"), "/flow.skel.rs"));
    }
    #[allow(missing_docs, clippy::all)]
    pub mod flow_live {
        include!(concat!(env!("OUT_DIR"), "/flow_live.skel.rs"));
    }
    #[allow(missing_docs, clippy::all)]
    pub mod load_rx {
        include!(concat!(env!("OUT_DIR"), "/load_rx.skel.rs"));
    }
    #[allow(missing_docs, clippy::all)]
    pub mod load_sink {
        include!(concat!(env!("OUT_DIR"), "/load_sink.skel.rs"));
    }
    #[allow(missing_docs, clippy::all)]
    pub mod load_tx {
        include!(concat!(env!("OUT_DIR"), "/load_tx.skel.rs"));
    }
    #[allow(missing_docs, clippy::all)]
    pub mod forward {
        include!(concat!(env!("OUT_DIR"), "/forward.skel.rs"));
    }
    #[allow(missing_docs, clippy::all)]
    pub mod reflect {
        include!(concat!(env!("OUT_DIR"), "/reflect.skel.rs"));
    }
    #[allow(missing_docs, clippy::all)]
    pub mod rtt {
        include!(concat!(env!("OUT_DIR"), "/rtt.skel.rs"));
    }
    #[allow(missing_docs, clippy::all)]
    pub mod stamper {
        include!(concat!(env!("OUT_DIR"), "/stamper.skel.rs"));
    }
    #[allow(missing_docs, clippy::all)]
    pub mod xsk {
        include!(concat!(env!("OUT_DIR"), "/xsk.skel.rs"));
    }
}
