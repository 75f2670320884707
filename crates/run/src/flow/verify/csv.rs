//! CSV: FlowTest's columns (one line a direction or a flow), ours, and those of
//! `nfdump -o csv`. Columns are found by their names; others are left alone.

use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use anyhow::anyhow;
use csv::ByteRecord;
use sonde_wire::protocol;

use crate::capture_file::{Octets, octets, unreadable};
use crate::error::{FileLine, RunError, SettingsError};
use crate::running::Stop;

use super::observed::{ComparedFields, End, Half, ObservedFlow, name_hash};

/// The truth, flow by flow.
pub(super) struct TruthReader {
    lines: Lines,
    /// Added to all times, ns.
    start_ns: i64,
}

impl TruthReader {
    /// `start_ms` is added to all times.
    pub fn open(path: &Path, start_ms: i64) -> Result<TruthReader, RunError> {
        let lines = Lines::of(octets(path)?, &path.display().to_string())?;
        if lines.columns.is_nfdump {
            let why = "the truth has FlowTest's columns, START_TIME and so on; this is of nfdump";
            return Err(wrong(&path.display().to_string(), 1, why).into());
        }
        Ok(TruthReader { lines, start_ns: start_ms.saturating_mul(1_000_000) })
    }

    /// The next flow; `None` at the end of the file.
    ///
    /// # Errors
    /// `Settings`: a line that is no flow. `Host`: the file cannot be read further.
    pub fn next(&mut self) -> Result<Option<ObservedFlow>, RunError> {
        let Some(mut flow) = self.lines.next()? else { return Ok(None) };
        let moved = |at: i64| at.saturating_add(self.start_ns);
        for span in [&mut flow.forward.span, &mut flow.reverse.span, &mut flow.span] {
            *span = span.map(|(a, b)| (moved(a), moved(b)));
        }
        Ok(Some(flow))
    }
}

/// Reads what was exported, until an urgent end is asked for.
pub(super) fn read(
    octets: Octets,
    name: &str,
    take: &mut dyn FnMut(&ObservedFlow),
    stop: &Stop,
) -> Result<(), RunError> {
    let mut lines = Lines::of(octets, name)?;
    while !stop.is_urgent()
        && let Some(flow) = lines.next()?
    {
        take(&flow);
    }
    Ok(())
}

/// A file whose lines are of bounded length: a line without end would fill the memory.
struct BoundedLines {
    octets: Octets,
    /// Since the end of the last line.
    in_line: usize,
}

impl Read for BoundedLines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.octets.read(buffer)?;
        let fresh = &buffer[..read];
        self.in_line = match fresh.iter().rposition(|&octet| octet == b'\n') {
            Some(end) => read - end - 1,
            None => self.in_line + read,
        };
        if self.in_line > LONGEST_LINE {
            let why = format!("a line of more than {} MiB is none of CSV", LONGEST_LINE >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(read)
    }
}

/// Octets of a line.
const LONGEST_LINE: usize = 16 << 20;

struct Lines {
    reader: csv::Reader<BoundedLines>,
    columns: Columns,
    record: ByteRecord,
    path: String,
}

/// Where each column is, if it is there.
#[derive(Default)]
struct Columns {
    is_nfdump: bool,
    source: Option<usize>,
    destination: Option<usize>,
    source_port: Option<usize>,
    destination_port: Option<usize>,
    protocol: Option<usize>,
    start: Option<usize>,
    end: Option<usize>,
    start_reverse: Option<usize>,
    end_reverse: Option<usize>,
    start_ns: Option<usize>,
    end_ns: Option<usize>,
    packets: Option<usize>,
    bytes: Option<usize>,
    packets_reverse: Option<usize>,
    bytes_reverse: Option<usize>,
    tcp_flags: Option<usize>,
    tos: Option<usize>,
    ttl: Option<usize>,
    vlan: Option<usize>,
    icmp: Option<usize>,
    name: Option<usize>,
}

impl Columns {
    fn find(header: &ByteRecord) -> Option<Columns> {
        // Some programs put a byte order mark before the first name.
        let name_of = |h: &[u8]| h.strip_prefix("\u{feff}".as_bytes()).unwrap_or(h).to_owned();
        let names: Vec<Vec<u8>> = header.iter().map(name_of).collect();
        let at = |name: &str| names.iter().position(|h| h == name.as_bytes());
        let either = |a: &str, b: &str| at(a).or_else(|| at(b));
        let is_nfdump = at("sa").is_some();
        let columns = if is_nfdump {
            Columns {
                is_nfdump,
                source: at("sa"),
                destination: at("da"),
                source_port: at("sp"),
                destination_port: at("dp"),
                protocol: at("pr"),
                start: at("ts"),
                end: at("te"),
                packets: at("ipkt"),
                bytes: at("ibyt"),
                packets_reverse: at("opkt"),
                bytes_reverse: at("obyt"),
                tcp_flags: at("flg"),
                tos: at("stos"),
                ..Columns::default()
            }
        } else {
            Columns {
                is_nfdump,
                source: at("SRC_IP"),
                destination: at("DST_IP"),
                source_port: at("SRC_PORT"),
                destination_port: at("DST_PORT"),
                protocol: either("PROTOCOL", "L4_PROTO"),
                start: at("START_TIME"),
                end: at("END_TIME"),
                start_reverse: at("START_TIME_REV"),
                end_reverse: at("END_TIME_REV"),
                start_ns: at("START_NS"),
                end_ns: at("END_NS"),
                packets: at("PACKETS"),
                bytes: at("BYTES"),
                packets_reverse: at("PACKETS_REV"),
                bytes_reverse: at("BYTES_REV"),
                tcp_flags: at("TCP_FLAGS"),
                tos: at("TOS"),
                ttl: at("TTL"),
                vlan: at("VLAN"),
                icmp: at("ICMP"),
                name: at("NAME"),
            }
        };
        let needed = [
            columns.source,
            columns.destination,
            columns.source_port,
            columns.destination_port,
            columns.protocol,
            columns.start,
            columns.end,
            columns.packets,
            columns.bytes,
        ];
        needed.iter().all(Option::is_some).then_some(columns)
    }
}

impl Lines {
    fn of(octets: Octets, name: &str) -> Result<Lines, RunError> {
        let mut reader = csv::ReaderBuilder::new()
            .flexible(true)
            .comment(Some(b'#'))
            .buffer_capacity(1 << 20)
            .from_reader(BoundedLines { octets, in_line: 0 });
        let path = name.to_owned();
        let header = reader.byte_headers().map_err(|e| unread(&path, 1, e))?;
        let columns = Columns::find(header).ok_or_else(|| {
            let why = "not the columns of flows; FlowTest's (START_TIME,END_TIME,PROTOCOL,\
                       SRC_IP,DST_IP,SRC_PORT,DST_PORT,PACKETS,BYTES) or nfdump's must be there";
            wrong(&path, 1, why)
        })?;
        Ok(Lines { reader, columns, record: ByteRecord::new(), path })
    }

    fn next(&mut self) -> Result<Option<ObservedFlow>, RunError> {
        match self.reader.read_byte_record(&mut self.record) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => {
                let line = self.reader.position().line();
                return Err(unread(&self.path, line, error));
            }
        }
        // Behind its flows nfdump writes sums.
        if self.columns.is_nfdump && self.record.get(0) == Some(b"Summary") {
            return Ok(None);
        }
        let line = self.record.position().map_or(0, |p| p.line());
        match flow(&self.columns, &self.record) {
            Some(flow) => Ok(Some(flow)),
            None => {
                let why = "not a flow: it lacks what the header names, or has text for a number; \
                           mend or remove it";
                Err(wrong(&self.path, line, why).into())
            }
        }
    }
}

/// A line that is none of such a file.
fn wrong(file: &str, line: u64, why: &str) -> SettingsError {
    let position = FileLine { file: file.to_owned(), line: line as usize };
    SettingsError::from(why.to_owned()).at(Some(&position))
}

/// Reading failed at a line: it is wrong itself, or the file cannot be read.
fn unread(file: &str, line: u64, error: csv::Error) -> RunError {
    match error.kind() {
        csv::ErrorKind::Io(why) if why.kind() == io::ErrorKind::InvalidData => {
            wrong(file, line, &why.to_string()).into()
        }
        _ => RunError::Host(anyhow!(error).context(unreadable(Path::new(file)))),
    }
}

fn flow(columns: &Columns, record: &ByteRecord) -> Option<ObservedFlow> {
    let text = |at: Option<usize>| std::str::from_utf8(record.get(at?)?).ok().map(str::trim);
    fn value<T: FromStr>(text: Option<&str>) -> Option<T> {
        text?.parse().ok()
    }
    let address = |at| text(at)?.parse::<IpAddr>().ok();
    let protocol = match text(columns.protocol)? {
        name if columns.is_nfdump => protocol_number(name)?,
        number => number.parse().ok()?,
    };
    // Of ICMP nfdump writes "8.0" or 2048; neither is a port, and the key has none.
    let port = |at| value(text(at)).or(if matches!(protocol, 6 | 17) { None } else { Some(0) });
    let time = |at| match columns.is_nfdump {
        true => date(text(at)?),
        false => millis(text(at)?),
    };
    let precise = value(text(columns.start_ns)).zip(value(text(columns.end_ns)));
    let span = match precise {
        Some(span) => span,
        None => (time(columns.start)?, time(columns.end)?),
    };
    let flags = match columns.is_nfdump {
        true => text(columns.tcp_flags).map(flag_letters),
        false => value(text(columns.tcp_flags)),
    };
    let fields = ComparedFields {
        tcp_flags: flags.filter(|_| protocol == 6),
        tos: value(text(columns.tos)),
        ttl: value(text(columns.ttl)),
        vlan: value(text(columns.vlan)),
        icmp: value(text(columns.icmp)),
        name: text(columns.name).filter(|n| !n.is_empty()).map(|n| name_hash(n.as_bytes())),
    };
    let mut forward = Half {
        packets: value(text(columns.packets))?,
        bytes: value(text(columns.bytes))?,
        span: None,
        fields,
    };
    let mut reverse = Half {
        packets: value(text(columns.packets_reverse)).unwrap_or(0),
        bytes: value(text(columns.bytes_reverse)).unwrap_or(0),
        ..Half::default()
    };
    let mut whole = None;
    let reverse_span = time(columns.start_reverse).zip(time(columns.end_reverse));
    if reverse_span.is_some() || reverse.packets == 0 {
        forward.span = Some(span);
        reverse.span = reverse_span.filter(|_| reverse.packets > 0);
    } else {
        whole = Some(span);
    }
    Some(ObservedFlow {
        source: End::new(address(columns.source)?, port(columns.source_port)?),
        destination: End::new(address(columns.destination)?, port(columns.destination_port)?),
        protocol,
        forward,
        reverse,
        span: whole,
        unit_ns: match (columns.is_nfdump, precise) {
            (true, _) => 1_000_000_000,
            (_, Some(_)) => 1,
            _ => 1_000_000,
        },
        reason: None,
        exported_ns: None,
    })
}

/// "1700000000001" or "1700000000001.999999", in ns.
fn millis(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut ns = whole.parse::<i64>().ok()?.checked_mul(1_000_000)?;
    let mut scale = 100_000;
    for digit in fraction.bytes() {
        if !digit.is_ascii_digit() {
            return None;
        }
        ns += i64::from(digit - b'0') * scale;
        scale /= 10;
    }
    Some(ns)
}

/// "2023-11-14 22:13:20" with or without a fraction, UTC, in ns.
fn date(text: &str) -> Option<i64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut parts = date.split('-').map(str::parse::<i64>);
    let mut next = || parts.next()?.ok();
    let (year, month, day) = (next()?, next()?, next()?);
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut parts = time.split(':').map(str::parse::<i64>);
    let mut next = || parts.next()?.ok();
    let (hour, minute, second) = (next()?, next()?, next()?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(1970..3000).contains(&year) {
        return None;
    }
    // Days of the civil calendar, years beginning in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    let fraction: i64 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Some(seconds * 1_000_000_000 + fraction)
}

/// Flags as letters, the highest bit first, "." where one is not set: "...AP.SF".
fn flag_letters(text: &str) -> u8 {
    let bit = |letter| match letter {
        b'F' => 1,
        b'S' => 2,
        b'R' => 4,
        b'P' => 8,
        b'A' => 16,
        b'U' => 32,
        b'E' => 64,
        b'C' | b'W' => 128,
        _ => 0,
    };
    text.bytes().fold(0, |flags, letter| flags | bit(letter))
}

/// The protocol number of a name as nfdump writes it.
fn protocol_number(name: &str) -> Option<u8> {
    match name {
        "ICMP6" => Some(58),
        "IPIP" => Some(4),
        "IPv6" => Some(41),
        "AH" => Some(51),
        name => protocol::number(name).or_else(|| name.parse().ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(millis("1700000000001"), Some(1_700_000_000_001_000_000));
        assert_eq!(millis("1.5"), Some(1_500_000));
        assert_eq!(millis("1.000001"), Some(1_000_001));
        assert_eq!((millis("x"), millis("1.x")), (None, None));
        assert_eq!(date("2023-11-14 22:13:20"), Some(1_700_000_000_000_000_000));
        assert_eq!(date("2023-11-14 22:13:20.25"), Some(1_700_000_000_250_000_000));
        assert_eq!(date("2024-02-29 00:00:00"), Some(1_709_164_800_000_000_000));
        assert_eq!((date("2023-13-14 22:13:20"), date("yesterday")), (None, None));
    }

    #[test]
    fn a_mark_before_the_first_name_is_no_part_of_it() {
        let text = "\u{feff}START_TIME,END_TIME,PROTOCOL,SRC_IP,DST_IP,SRC_PORT,DST_PORT,PACKETS,BYTES\n\
                    1,2,17,192.0.2.1,192.0.2.2,7,9,1,28\n";
        let mut lines = Lines::of(Box::new(text.as_bytes()), "t.csv").unwrap();
        assert!(lines.next().unwrap().is_some() && lines.next().unwrap().is_none());
    }

    /// Exit code 2: it fails on every host.
    #[test]
    fn a_wrong_line_is_a_wrong_setting_with_its_line() {
        let header = "START_TIME,END_TIME,PROTOCOL,SRC_IP,DST_IP,SRC_PORT,DST_PORT,PACKETS,BYTES\n";
        let good = "1,2,17,192.0.2.1,192.0.2.2,7,9,1,28\n";
        let wrong_line = |text: String| -> SettingsError {
            let lines = Lines::of(Box::new(io::Cursor::new(text)), "t.csv");
            let error = lines.and_then(|mut lines| {
                loop {
                    lines.next()?.expect("a wrong line comes first");
                }
            });
            let error: Result<(), RunError> = error;
            match error {
                Err(RunError::Settings(wrong)) => wrong,
                other => panic!("{other:?}"),
            }
        };
        let third = wrong_line(format!("{header}{good}{}", good.replace("192.0.2.1", "nowhere")));
        assert_eq!((third.file.as_deref(), third.line), (Some("t.csv"), Some(3)));
        assert!(third.message.starts_with("t.csv line 3: not a flow"), "{third}");
        assert_eq!(wrong_line("A,B\n1,2\n".into()).line, Some(1));
        let endless = format!("{header}{good}{}", "x".repeat(LONGEST_LINE + (2 << 20)));
        assert_eq!(wrong_line(endless).line, Some(3));
    }

    /// Exit code 3: another host may have it.
    #[test]
    fn a_truth_that_is_not_there_is_the_hosts() {
        match TruthReader::open(Path::new("/nonexistent/truth.csv"), 0).err().unwrap() {
            RunError::Host(error) => {
                let text = format!("{error:#}");
                assert!(text.starts_with("cannot read /nonexistent/truth.csv; name a"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let error = Lines::of(Box::new(io::repeat(b'x')), "t.csv").err().unwrap();
        assert!(format!("{error:#}").contains("a line of more than 16 MiB"), "{error:#}");
        let lines = std::iter::repeat_n(b"x\n", 40 << 20).flatten().copied().collect::<Vec<u8>>();
        let mut bounded = BoundedLines { octets: Box::new(io::Cursor::new(lines)), in_line: 0 };
        assert_eq!(io::copy(&mut bounded, &mut io::sink()).unwrap(), 80 << 20);
    }

    #[test]
    fn flags_of_nfdump() {
        assert_eq!(flag_letters("...AP.SF"), 0x1B);
        assert_eq!(flag_letters("........"), 0);
    }
}
