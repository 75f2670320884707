//! What is wrong with settings, and what to give instead.

/// A setting that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// See [`super::Config::flows`].
    #[error("{0} flows: give a power of two from 8 to 16777216, such as 131072")]
    Flows(usize),
    /// See [`super::Config::groups`].
    #[error("{0} groups: give 1 to 16777216")]
    Groups(usize),
    /// See [`super::Config::slot_pages`].
    #[error("{0} pages of slots: give 0 to 65535")]
    SlotPages(usize),
    /// See [`super::RttFilter::nets`].
    #[error("{0} networks in the filter: give at most 8, or a wider prefix")]
    Nets(usize),
    /// A network of [`super::RttFilter::nets`].
    #[error("{0}/{1} in the filter: an IPv4 prefix has at most 32 bits, an IPv6 one 128")]
    Net(std::net::IpAddr, u8),
    /// See [`super::RttFilter::ports`].
    #[error("{0} ports in the filter: give at most 8")]
    Ports(usize),
}
