//! Information elements: identifier, name and type of those that Sonde exports, and of those
//! that other exporters' flows are compared by.
//!
//! IANA's are the registry's. No IANA element exists for most of what applications say, so these
//! are the identifiers in use. CESNET's (8057) and Flowmon's (39499) are as ipfixprobe has them.
//! CERT's (6871) are from libfixbuf and the documents of YAF, ntop's (35632) from those of nProbe.
//! Their names are ours where theirs are not public.

use super::REVERSE;

/// What the bytes of a value mean (RFC 7012, section 3.1; RFC 6313).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    /// Bytes.
    OctetArray,
    /// 1 byte.
    Unsigned8,
    /// Up to 2 bytes.
    Unsigned16,
    /// Up to 4 bytes.
    Unsigned32,
    /// Up to 8 bytes.
    Unsigned64,
    /// 1 byte.
    Signed8,
    /// 8 bytes, or 4.
    Float64,
    /// 6 bytes.
    MacAddress,
    /// UTF-8.
    String,
    /// 4 bytes, s since 1970.
    DateTimeSeconds,
    /// 8 bytes, ms since 1970.
    DateTimeMilliseconds,
    /// 8 bytes: s since 1900, and the fraction in 2^-32 s of which the last 11 bits count not.
    DateTimeMicroseconds,
    /// 8 bytes: s since 1900, and the fraction in 2^-32 s.
    DateTimeNanoseconds,
    /// 4 bytes.
    Ipv4Address,
    /// 16 bytes.
    Ipv6Address,
    /// A list of one element.
    BasicList,
}

impl DataType {
    /// Its value in the registry of data types (RFC 5610, section 3.1; RFC 6313, section 10.1).
    pub const fn code(self) -> u8 {
        match self {
            DataType::OctetArray => 0,
            DataType::Unsigned8 => 1,
            DataType::Unsigned16 => 2,
            DataType::Unsigned32 => 3,
            DataType::Unsigned64 => 4,
            DataType::Signed8 => 5,
            DataType::Float64 => 10,
            DataType::MacAddress => 12,
            DataType::String => 13,
            DataType::DateTimeSeconds => 14,
            DataType::DateTimeMilliseconds => 15,
            DataType::DateTimeMicroseconds => 16,
            DataType::DateTimeNanoseconds => 17,
            DataType::Ipv4Address => 18,
            DataType::Ipv6Address => 19,
            DataType::BasicList => 20,
        }
    }
}

/// What RFC 7012, 2.1 says of an information element, without the description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Element {
    /// Private enterprise number; 0: IANA's.
    pub enterprise: u32,
    /// Element ID, 15 bits.
    pub id: u16,
    pub name: &'static str,
    /// What its bytes mean.
    pub kind: DataType,
}

impl Element {
    /// The same of the reverse direction (RFC 5103, section 6.1).
    pub const fn reverse(self) -> Element {
        Element { enterprise: REVERSE, ..self }
    }
}

/// The element of an enterprise number (0: IANA) and an identifier, if it is known here. The
/// reverse enterprise has IANA's elements.
pub fn find(enterprise: u32, id: u16) -> Option<Element> {
    let owner = if enterprise == REVERSE { 0 } else { enterprise };
    let at = ALL.binary_search_by_key(&(owner, id), |e| (e.enterprise, e.id)).ok()?;
    Some(Element { enterprise, ..ALL[at] })
}

/// Defines the elements once: a constant each, and the table of all.
macro_rules! elements {
    ($($constant:ident = $enterprise:literal, $id:literal, $name:literal, $kind:ident;)*) => {
        $(
            #[doc = concat!("`", $name, "`")]
            pub const $constant: Element =
                Element { enterprise: $enterprise, id: $id, name: $name, kind: DataType::$kind };
        )*
        /// All, ascending by enterprise number and identifier.
        pub static ALL: &[Element] = &[$($constant,)*];
    };
}

elements! {
    OCTET_DELTA_COUNT = 0, 1, "octetDeltaCount", Unsigned64;
    PACKET_DELTA_COUNT = 0, 2, "packetDeltaCount", Unsigned64;
    PROTOCOL_IDENTIFIER = 0, 4, "protocolIdentifier", Unsigned8;
    IP_CLASS_OF_SERVICE = 0, 5, "ipClassOfService", Unsigned8;
    TCP_CONTROL_BITS = 0, 6, "tcpControlBits", Unsigned16;
    SOURCE_TRANSPORT_PORT = 0, 7, "sourceTransportPort", Unsigned16;
    SOURCE_IPV4_ADDRESS = 0, 8, "sourceIPv4Address", Ipv4Address;
    INGRESS_INTERFACE = 0, 10, "ingressInterface", Unsigned32;
    DESTINATION_TRANSPORT_PORT = 0, 11, "destinationTransportPort", Unsigned16;
    DESTINATION_IPV4_ADDRESS = 0, 12, "destinationIPv4Address", Ipv4Address;
    EGRESS_INTERFACE = 0, 14, "egressInterface", Unsigned32;
    FLOW_END_SYS_UP_TIME = 0, 21, "flowEndSysUpTime", Unsigned32;
    FLOW_START_SYS_UP_TIME = 0, 22, "flowStartSysUpTime", Unsigned32;
    SOURCE_IPV6_ADDRESS = 0, 27, "sourceIPv6Address", Ipv6Address;
    DESTINATION_IPV6_ADDRESS = 0, 28, "destinationIPv6Address", Ipv6Address;
    ICMP_TYPE_CODE_IPV4 = 0, 32, "icmpTypeCodeIPv4", Unsigned16;
    SAMPLING_INTERVAL = 0, 34, "samplingInterval", Unsigned32;
    SAMPLING_ALGORITHM = 0, 35, "samplingAlgorithm", Unsigned8;
    EXPORTED_OCTET_TOTAL_COUNT = 0, 40, "exportedOctetTotalCount", Unsigned64;
    EXPORTED_MESSAGE_TOTAL_COUNT = 0, 41, "exportedMessageTotalCount", Unsigned64;
    EXPORTED_FLOW_RECORD_TOTAL_COUNT = 0, 42, "exportedFlowRecordTotalCount", Unsigned64;
    SAMPLER_ID = 0, 48, "samplerId", Unsigned8;
    SAMPLER_MODE = 0, 49, "samplerMode", Unsigned8;
    SAMPLER_RANDOM_INTERVAL = 0, 50, "samplerRandomInterval", Unsigned32;
    MINIMUM_TTL = 0, 52, "minimumTTL", Unsigned8;
    MAXIMUM_TTL = 0, 53, "maximumTTL", Unsigned8;
    SOURCE_MAC_ADDRESS = 0, 56, "sourceMacAddress", MacAddress;
    VLAN_ID = 0, 58, "vlanId", Unsigned16;
    IP_VERSION = 0, 60, "ipVersion", Unsigned8;
    FLOW_DIRECTION = 0, 61, "flowDirection", Unsigned8;
    MPLS_TOP_LABEL_STACK_SECTION = 0, 70, "mplsTopLabelStackSection", OctetArray;
    MPLS_LABEL_STACK_SECTION2 = 0, 71, "mplsLabelStackSection2", OctetArray;
    MPLS_LABEL_STACK_SECTION3 = 0, 72, "mplsLabelStackSection3", OctetArray;
    DESTINATION_MAC_ADDRESS = 0, 80, "destinationMacAddress", MacAddress;
    INTERFACE_NAME = 0, 82, "interfaceName", String;
    INTERFACE_DESCRIPTION = 0, 83, "interfaceDescription", String;
    OCTET_TOTAL_COUNT = 0, 85, "octetTotalCount", Unsigned64;
    PACKET_TOTAL_COUNT = 0, 86, "packetTotalCount", Unsigned64;
    APPLICATION_NAME = 0, 96, "applicationName", String;
    EXPORTER_IPV4_ADDRESS = 0, 130, "exporterIPv4Address", Ipv4Address;
    EXPORTER_IPV6_ADDRESS = 0, 131, "exporterIPv6Address", Ipv6Address;
    FLOW_END_REASON = 0, 136, "flowEndReason", Unsigned8;
    ICMP_TYPE_CODE_IPV6 = 0, 139, "icmpTypeCodeIPv6", Unsigned16;
    METERING_PROCESS_ID = 0, 143, "meteringProcessId", Unsigned32;
    EXPORTING_PROCESS_ID = 0, 144, "exportingProcessId", Unsigned32;
    TEMPLATE_ID = 0, 145, "templateId", Unsigned16;
    FLOW_ID = 0, 148, "flowId", Unsigned64;
    OBSERVATION_DOMAIN_ID = 0, 149, "observationDomainId", Unsigned32;
    FLOW_START_SECONDS = 0, 150, "flowStartSeconds", DateTimeSeconds;
    FLOW_END_SECONDS = 0, 151, "flowEndSeconds", DateTimeSeconds;
    FLOW_START_MILLISECONDS = 0, 152, "flowStartMilliseconds", DateTimeMilliseconds;
    FLOW_END_MILLISECONDS = 0, 153, "flowEndMilliseconds", DateTimeMilliseconds;
    FLOW_START_MICROSECONDS = 0, 154, "flowStartMicroseconds", DateTimeMicroseconds;
    FLOW_END_MICROSECONDS = 0, 155, "flowEndMicroseconds", DateTimeMicroseconds;
    FLOW_START_NANOSECONDS = 0, 156, "flowStartNanoseconds", DateTimeNanoseconds;
    FLOW_END_NANOSECONDS = 0, 157, "flowEndNanoseconds", DateTimeNanoseconds;
    FLOW_START_DELTA_MICROSECONDS = 0, 158, "flowStartDeltaMicroseconds", Unsigned32;
    FLOW_END_DELTA_MICROSECONDS = 0, 159, "flowEndDeltaMicroseconds", Unsigned32;
    SYSTEM_INIT_TIME_MILLISECONDS = 0, 160, "systemInitTimeMilliseconds", DateTimeMilliseconds;
    FLOW_DURATION_MILLISECONDS = 0, 161, "flowDurationMilliseconds", Unsigned32;
    IGNORED_PACKET_TOTAL_COUNT = 0, 164, "ignoredPacketTotalCount", Unsigned64;
    IGNORED_OCTET_TOTAL_COUNT = 0, 165, "ignoredOctetTotalCount", Unsigned64;
    NOT_SENT_FLOW_TOTAL_COUNT = 0, 166, "notSentFlowTotalCount", Unsigned64;
    NOT_SENT_PACKET_TOTAL_COUNT = 0, 167, "notSentPacketTotalCount", Unsigned64;
    NOT_SENT_OCTET_TOTAL_COUNT = 0, 168, "notSentOctetTotalCount", Unsigned64;
    FLOW_KEY_INDICATOR = 0, 173, "flowKeyIndicator", Unsigned64;
    ICMP_TYPE_IPV4 = 0, 176, "icmpTypeIPv4", Unsigned8;
    ICMP_CODE_IPV4 = 0, 177, "icmpCodeIPv4", Unsigned8;
    ICMP_TYPE_IPV6 = 0, 178, "icmpTypeIPv6", Unsigned8;
    ICMP_CODE_IPV6 = 0, 179, "icmpCodeIPv6", Unsigned8;
    UDP_SOURCE_PORT = 0, 180, "udpSourcePort", Unsigned16;
    UDP_DESTINATION_PORT = 0, 181, "udpDestinationPort", Unsigned16;
    TCP_SOURCE_PORT = 0, 182, "tcpSourcePort", Unsigned16;
    TCP_DESTINATION_PORT = 0, 183, "tcpDestinationPort", Unsigned16;
    TCP_WINDOW_SIZE = 0, 186, "tcpWindowSize", Unsigned16;
    IP_TTL = 0, 192, "ipTTL", Unsigned8;
    PADDING_OCTETS = 0, 210, "paddingOctets", OctetArray;
    INITIATOR_OCTETS = 0, 231, "initiatorOctets", Unsigned64;
    RESPONDER_OCTETS = 0, 232, "responderOctets", Unsigned64;
    BIFLOW_DIRECTION = 0, 239, "biflowDirection", Unsigned8;
    DOT1Q_VLAN_ID = 0, 243, "dot1qVlanId", Unsigned16;
    DOT1Q_CUSTOMER_VLAN_ID = 0, 245, "dot1qCustomerVlanId", Unsigned16;
    MAX_EXPORT_SECONDS = 0, 260, "maxExportSeconds", DateTimeSeconds;
    MAX_FLOW_END_SECONDS = 0, 261, "maxFlowEndSeconds", DateTimeSeconds;
    MESSAGE_MD5_CHECKSUM = 0, 262, "messageMD5Checksum", OctetArray;
    MESSAGE_SCOPE = 0, 263, "messageScope", Unsigned8;
    MIN_EXPORT_SECONDS = 0, 264, "minExportSeconds", DateTimeSeconds;
    MIN_FLOW_START_SECONDS = 0, 265, "minFlowStartSeconds", DateTimeSeconds;
    SESSION_SCOPE = 0, 267, "sessionScope", Unsigned8;
    MAX_FLOW_END_MILLISECONDS = 0, 269, "maxFlowEndMilliseconds", DateTimeMilliseconds;
    MIN_FLOW_START_MILLISECONDS = 0, 272, "minFlowStartMilliseconds", DateTimeMilliseconds;
    BASIC_LIST = 0, 291, "basicList", BasicList;
    GRE_KEY = 0, 296, "greKey", Unsigned32;
    INITIATOR_PACKETS = 0, 298, "initiatorPackets", Unsigned64;
    RESPONDER_PACKETS = 0, 299, "responderPackets", Unsigned64;
    SELECTOR_ID = 0, 302, "selectorId", Unsigned64;
    INFORMATION_ELEMENT_ID = 0, 303, "informationElementId", Unsigned16;
    SELECTOR_ALGORITHM = 0, 304, "selectorAlgorithm", Unsigned16;
    SAMPLING_PACKET_INTERVAL = 0, 305, "samplingPacketInterval", Unsigned32;
    SAMPLING_PACKET_SPACE = 0, 306, "samplingPacketSpace", Unsigned32;
    SAMPLING_TIME_INTERVAL = 0, 307, "samplingTimeInterval", Unsigned32;
    SAMPLING_TIME_SPACE = 0, 308, "samplingTimeSpace", Unsigned32;
    SAMPLING_SIZE = 0, 309, "samplingSize", Unsigned32;
    SAMPLING_POPULATION = 0, 310, "samplingPopulation", Unsigned32;
    SAMPLING_PROBABILITY = 0, 311, "samplingProbability", Float64;
    SELECTOR_ID_TOTAL_PKTS_OBSERVED = 0, 318, "selectorIdTotalPktsObserved", Unsigned64;
    SELECTOR_ID_TOTAL_PKTS_SELECTED = 0, 319, "selectorIdTotalPktsSelected", Unsigned64;
    HASH_IPPAYLOAD_OFFSET = 0, 327, "hashIPPayloadOffset", Unsigned64;
    HASH_IPPAYLOAD_SIZE = 0, 328, "hashIPPayloadSize", Unsigned64;
    HASH_OUTPUT_RANGE_MIN = 0, 329, "hashOutputRangeMin", Unsigned64;
    HASH_OUTPUT_RANGE_MAX = 0, 330, "hashOutputRangeMax", Unsigned64;
    HASH_SELECTED_RANGE_MIN = 0, 331, "hashSelectedRangeMin", Unsigned64;
    HASH_SELECTED_RANGE_MAX = 0, 332, "hashSelectedRangeMax", Unsigned64;
    HASH_INITIALISER_VALUE = 0, 334, "hashInitialiserValue", Unsigned64;
    INFORMATION_ELEMENT_DATA_TYPE = 0, 339, "informationElementDataType", Unsigned8;
    INFORMATION_ELEMENT_NAME = 0, 341, "informationElementName", String;
    INFORMATION_ELEMENT_SEMANTICS = 0, 344, "informationElementSemantics", Unsigned8;
    PRIVATE_ENTERPRISE_NUMBER = 0, 346, "privateEnterpriseNumber", Unsigned32;
    LAYER2_SEGMENT_ID = 0, 351, "layer2SegmentId", Unsigned64;
    GTPU_TEID = 0, 507, "gtpuTEid", Unsigned32;
    PATH_DELAY_MEAN_DELTA_MICROSECONDS = 0, 530, "pathDelayMeanDeltaMicroseconds", Unsigned32;
    SSH_VERSION = 6871, 171, "sshVersion", String;
    DHCP_VENDOR_CODE = 6871, 243, "dhcpVendorCode", String;
    DNS_RESPONSE_CODE = 8057, 1, "dnsResponseCode", Unsigned8;
    DNS_NAME = 8057, 2, "dnsName", String;
    DNS_QUERY_TYPE = 8057, 3, "dnsQueryType", Unsigned16;
    DNS_ANSWERS = 8057, 14, "dnsAnswers", Unsigned16;
    NTP_VERSION = 8057, 19, "ntpVersion", Unsigned8;
    NTP_MODE = 8057, 20, "ntpMode", Unsigned8;
    NTP_STRATUM = 8057, 21, "ntpStratum", Unsigned8;
    SIP_MESSAGE_TYPE = 8057, 100, "sipMessageType", Unsigned16;
    SIP_STATUS_CODE = 8057, 101, "sipStatusCode", Unsigned16;
    SIP_CALL_ID = 8057, 102, "sipCallId", String;
    SIP_CALLING_PARTY = 8057, 103, "sipCallingParty", String;
    SIP_CALLED_PARTY = 8057, 104, "sipCalledParty", String;
    HTTP_METHOD = 8057, 200, "httpMethod", String;
    TLS_SERVER_NAME = 8057, 808, "tlsServerName", String;
    TLS_JA4 = 8057, 809, "tlsJa4", String;
    SMTP_SENDER = 8057, 813, "smtpSender", String;
    SMTP_RECIPIENT = 8057, 814, "smtpRecipient", String;
    SMTP_DOMAIN = 8057, 820, "smtpDomain", String;
    QUIC_SERVER_NAME = 8057, 890, "quicServerName", String;
    QUIC_VERSION = 8057, 892, "quicVersion", Unsigned32;
    PACKET_LENGTHS = 8057, 1013, "packetLengths", Unsigned16;
    PACKET_TIMES = 8057, 1014, "packetTimes", DateTimeMilliseconds;
    PACKET_FLAGS = 8057, 1015, "packetFlags", Unsigned8;
    PACKET_DIRECTIONS = 8057, 1016, "packetDirections", Signed8;
    SOURCE_LENGTH_HISTOGRAM = 8057, 1060, "sourceLengthHistogram", Unsigned32;
    SOURCE_GAP_HISTOGRAM = 8057, 1061, "sourceGapHistogram", Unsigned32;
    DESTINATION_LENGTH_HISTOGRAM = 8057, 1062, "destinationLengthHistogram", Unsigned32;
    DESTINATION_GAP_HISTOGRAM = 8057, 1063, "destinationGapHistogram", Unsigned32;
    RETRANSMITTED_IN_PKTS = 35632, 109, "retransmittedInPkts", Unsigned32;
    RETRANSMITTED_OUT_PKTS = 35632, 110, "retransmittedOutPkts", Unsigned32;
    OUT_OF_ORDER_IN_PKTS = 35632, 111, "outOfOrderInPkts", Unsigned32;
    OUT_OF_ORDER_OUT_PKTS = 35632, 112, "outOfOrderOutPkts", Unsigned32;
    APPL_LATENCY_MS = 35632, 125, "applLatencyMs", Unsigned32;
    DHCP_CLIENT_MAC = 35632, 353, "dhcpClientMac", MacAddress;
    DHCP_CLIENT_NAME = 35632, 355, "dhcpClientName", String;
    DHCP_MESSAGE_TYPE = 35632, 429, "dhcpMessageType", Unsigned8;
    HTTP_HOST = 39499, 1, "httpHost", String;
    HTTP_TARGET = 39499, 2, "httpTarget", String;
    HTTP_STATUS = 39499, 12, "httpStatus", Unsigned16;
    HTTP_USER_AGENT = 39499, 20, "httpUserAgent", String;
    TLS_VERSION = 39499, 333, "tlsVersion", Unsigned16;
    TLS_ALPN = 39499, 337, "tlsAlpn", String;
    TLS_JA3 = 39499, 357, "tlsJa3", OctetArray;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_ascends() {
        for pair in ALL.windows(2) {
            let key = |e: &Element| (e.enterprise, e.id);
            assert!(key(&pair[0]) < key(&pair[1]), "{} {}", pair[0].name, pair[1].name);
        }
    }

    #[test]
    fn elements_are_found_by_number_also_reversed() {
        assert_eq!(find(0, 1), Some(OCTET_DELTA_COUNT));
        assert_eq!(find(REVERSE, 1), Some(OCTET_DELTA_COUNT.reverse()));
        assert_eq!(find(8057, 808), Some(TLS_SERVER_NAME));
        assert_eq!(find(8057, 9999), None);
    }
}
