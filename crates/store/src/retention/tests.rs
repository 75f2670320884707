use proptest::prelude::*;

use super::*;

fn segments() -> impl Strategy<Value = Vec<SegmentInfo>> {
    let one = (0usize..11, 0i64..400, 0i64..30, 1u64..100, any::<bool>());
    prop::collection::vec(one, 0..40).prop_map(|all| {
        let of = |(i, (table, at, span, octets, rolled)): (usize, (usize, i64, i64, u64, bool))| {
            SegmentInfo {
                id: SegmentId(i as u64),
                table: Table::ALL[table],
                times_ns: (at - span, at),
                octets,
                rolled,
                tier: 0,
            }
        };
        all.into_iter().enumerate().map(of).collect()
    })
}

fn policy() -> impl Strategy<Value = Retention> {
    let keep = (prop::option::of(0i64..400), prop::option::of(0u64..600));
    (prop::collection::vec(prop::option::of(keep), 11), 0u64..500).prop_map(|(keeps, floor)| {
        let tables = Table::ALL.into_iter().zip(keeps);
        let tables = tables.filter_map(|(table, keep)| {
            let (age_ns, octets) = keep?;
            Some((table, KeepTable { age_ns, octets }))
        });
        Retention { tables: tables.collect(), floor_octets: floor }
    })
}

/// May go by age and size.
fn free_to_go(s: &SegmentInfo) -> bool {
    s.rolled || s.table.coarser().is_none()
}

proptest! {
    #[test]
    fn laws(all in segments(), policy in policy(), free in prop::option::of(0u64..800), now in 0i64..500) {
        let gone = expired(&all, &policy, free, now);
        let is_gone = |s: &SegmentInfo| gone.contains(&s.id);
        prop_assert!(gone.is_sorted() && gone.iter().all(|id| all.iter().any(|s| s.id == *id)));
        let by_policy = expired(&all, &policy, None, now);
        prop_assert!(by_policy.iter().all(|id| gone.contains(id)), "room only adds to them");
        for table in Table::ALL {
            let keep = policy.tables.get(&table).copied().unwrap_or_default();
            let own: Vec<&SegmentInfo> = all.iter().filter(|s| s.table == table).collect();
            let left: u64 = own.iter().filter(|s| !is_gone(s)).map(|s| s.octets).sum();
            let fixed: u64 = own.iter().filter(|s| !free_to_go(s)).map(|s| s.octets).sum();
            for s in &own {
                let old = keep.age_ns.is_some_and(|age| s.times_ns.1 < now - age);
                prop_assert!(!old || !free_to_go(s) || is_gone(s), "old and kept: {s:?}");
                let named = by_policy.contains(&s.id);
                prop_assert!(!named || free_to_go(s), "not rolled up and gone: {s:?}");
                // Gone for its size: nothing older that may go is kept, and with it the table is too large.
                if named && !old {
                    let newer = |o: &SegmentInfo| (o.times_ns.1, o.id) >= (s.times_ns.1, s.id);
                    let then: u64 = own.iter().filter(|o| newer(o) || !free_to_go(o)).map(|o| o.octets).sum();
                    prop_assert!(then > keep.octets.unwrap());
                }
            }
            if let Some(most) = keep.octets {
                prop_assert!(left <= most.max(fixed), "{table:?} has {left} of {most}");
            }
        }
        // The floor is held as far as there is anything to give, and not more is given than that.
        if let Some(free) = free {
            let freed = |ids: &[SegmentId]| -> u64 { all.iter().filter(|s| ids.contains(&s.id)).map(|s| s.octets).sum() };
            let room = free + freed(&gone);
            prop_assert!(room >= policy.floor_octets || gone.len() == all.len());
            if let Some(last) = all.iter().filter(|s| is_gone(s) && !by_policy.contains(&s.id)).map(|s| s.octets).min() {
                prop_assert!(room - last < policy.floor_octets || gone.len() > by_policy.len() + 1);
            }
            // Raw before roll-ups, and what is not rolled up last.
            let for_room = |s: &&SegmentInfo| is_gone(s) && !by_policy.contains(&s.id);
            for g in all.iter().filter(for_room) {
                let earlier = |s: &SegmentInfo| {
                    (free_to_go(s), std::cmp::Reverse(s.table.step_ns())) > (free_to_go(g), std::cmp::Reverse(g.table.step_ns()))
                };
                prop_assert!(all.iter().filter(|s| earlier(s)).all(is_gone), "{g:?} went too early");
            }
        }
        // What is left stays, in the room that was made.
        let left: Vec<SegmentInfo> = all.iter().filter(|s| !is_gone(s)).cloned().collect();
        let freed: u64 = all.iter().filter(|s| is_gone(s)).map(|s| s.octets).sum();
        prop_assert_eq!(expired(&left, &policy, free.map(|f| f + freed), now), []);
        // Their order does not matter.
        let mut turned = all.clone();
        turned.reverse();
        prop_assert_eq!(expired(&turned, &policy, free, now), gone);
    }
}

#[test]
fn the_default_fits_a_disk_of_20_gb() {
    let policy = Retention::default();
    let most: u64 = policy.tables.values().filter_map(|keep| keep.octets).sum();
    assert_eq!(policy.tables.len(), Table::ALL.len());
    assert!(most + policy.floor_octets <= 20_000_000_000, "{most}");
}
