use proptest::prelude::*;

use super::*;
use crate::testing;

fn round_trip(rows: Rows) -> Batch {
    let batch = Batch { writer: "probe-1".into(), number: 7, rows: rows.into() };
    let mut octets = Vec::new();
    batch.encode(&mut octets);
    octets.push(0xAA);
    let mut from = &octets[..];
    assert_eq!(Batch::decode(&mut from).as_ref(), Some(&batch));
    assert_eq!(from, [0xAA], "what follows is left");
    // Cut short anywhere it is none.
    for end in (0..octets.len() - 1).step_by(1 + octets.len() / 500) {
        assert_eq!(Batch::decode(&mut &octets[..end]), None, "{end}");
    }
    batch
}

#[test]
fn what_is_encoded_is_decoded() {
    let batch = round_trip(Rows::Intervals(testing::intervals(1, 5, 20, 10)));
    assert_eq!((batch.rows.len(), batch.rows.greatest_series()), (100, Some(4)));
    round_trip(Rows::Flows(testing::flows(2, 3, 200, 600_000_000_000)));
    round_trip(Rows::Rtt(testing::rtt(4, 2, 5)));
    round_trip(Rows::Interfaces(testing::interfaces(5, 2)));
    round_trip(Rows::Flows(vec![]));
    round_trip(Rows::Intervals(vec![IntervalRow::default()]));
}

#[test]
fn rows_of_an_earlier_version_lack_the_columns_that_came_later() {
    let rows = testing::intervals(1, 2, 3, 4);
    let mut octets = Vec::new();
    encode_rows(&rows, &mut octets);
    // Rows and columns take an octet each; keep the columns series, start and length.
    let mut from = &octets[2..];
    let kept: Vec<&[u8]> = (0..3).map(|_| varint::take_counted(&mut from).unwrap()).collect();
    let mut earlier = vec![rows.len() as u8, 3];
    kept.iter().for_each(|c| varint::put_bytes(&mut earlier, c));
    let back: Vec<IntervalRow> = decode_rows(&mut &earlier[..]).unwrap();
    let expected = rows.iter().map(|r| IntervalRow {
        series: r.series,
        start_ns: r.start_ns,
        length_ns: r.length_ns,
        ..IntervalRow::default()
    });
    assert!(back.into_iter().eq(expected));
    // Of a later version it is not read at all: a part of its sense would be lost.
    earlier[1] = IntervalRow::COLUMNS.len() as u8 + 1;
    assert_eq!(decode_rows::<IntervalRow>(&mut &earlier[..]), None);
}

proptest! {
    #[test]
    fn arbitrary_octets_do_no_harm(
        mut octets in prop::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        to in any::<u8>(),
    ) {
        let _ = Batch::decode(&mut &octets[..]);
        octets.clear();
        let rows = Rows::Flows(testing::flows(3, 1, 3, 1_000_000_000));
        Batch { writer: "w".into(), number: 1, rows: rows.into() }.encode(&mut octets);
        let at = at.index(octets.len());
        octets[at] = to;
        let _ = Batch::decode(&mut &octets[..]);
    }
}
