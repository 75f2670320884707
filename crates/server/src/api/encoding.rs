//! Answers in gzip (RFC 9110, section 12.5.3), where the client takes it and it is worth it.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::header::{ACCEPT_ENCODING, HeaderMap};

/// Whether the client takes gzip.
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let codings = lists.flat_map(|list| list.split(',')).filter_map(weight_of);
    let (mut named, mut any) = (None, None);
    for (coding, takes) in codings {
        match coding.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => named = Some(takes),
            "*" => any = Some(takes),
            _ => {}
        }
    }
    named.or(any).unwrap_or(false)
}

/// A coding, and whether it is wanted at all.
fn weight_of(item: &str) -> Option<(&str, bool)> {
    let mut parts = item.split(';').map(str::trim);
    let coding = parts.next().filter(|coding| !coding.is_empty())?;
    let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
    let weight: f64 = weight.map_or(Ok(1.0), str::parse).ok()?;
    Some((coding, weight > 0.0))
}

/// The body in gzip; `None`: it is short, or no shorter so.
pub(super) fn gzip(body: &[u8]) -> Option<Vec<u8>> {
    if body.len() < WORTH {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    encoder.write_all(body).ok()?;
    encoder.finish().ok().filter(|short| short.len() < body.len())
}

/// Octets from which on it is worth the time: an answer of one packet stays one.
const WORTH: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn gzip_is_taken_where_it_is_named_and_not_refused() {
        for (fields, takes) in [
            (&["gzip"][..], true),
            (&["deflate, GZIP;q=0.5"], true),
            (&["br", "gzip"], true),
            (&["*"], true),
            (&["*;q=1, gzip;q=0"], false),
            (&["gzip; q=0.000"], false),
            (&["gzip;q=x"], false),
            (&["identity"], false),
            (&["", ","], false),
            (&[], false),
        ] {
            let mut headers = HeaderMap::new();
            for field in fields {
                headers.append(ACCEPT_ENCODING, field.parse().unwrap());
            }
            assert_eq!(takes_gzip(&headers), takes, "{fields:?}");
        }
    }

    #[test]
    fn a_long_body_is_shorter_and_the_same_again() {
        let body = b"{\"value\":1.25}".repeat(1_000);
        let short = gzip(&body).unwrap();
        assert!(short.len() < body.len() / 10);
        let mut again = Vec::new();
        flate2::read::GzDecoder::new(&short[..]).read_to_end(&mut again).unwrap();
        assert_eq!(again, body);
        assert_eq!(gzip(&body[..WORTH - 1]), None);
    }
}
