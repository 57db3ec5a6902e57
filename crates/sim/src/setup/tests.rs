//! What setups draw, counted: a field that never varies hides every fault that another value would show.
//! Owns: the list of what never varies, with reasons. Not here: how often a value is drawn, which faults are (`kinds`).

use super::*;
use std::collections::{BTreeMap, BTreeSet};

/// What no setup of the swarm varies, and why.
const FIXED: [(&str, &str); 8] = [
    ("chunk of a member", "a member that is striped itself only changes how requests are cut, which `host` decides"),
    ("fast_zeroes", "only NBD clients are told"),
    ("io_max", "larger than any request of so small an array"),
    ("is_long", "long seeds are drawn apart, with their own sizes"),
    ("logical_block", "all is counted in sectors of 512 bytes; members with larger blocks are not simulated"),
    ("physical_block", "the engine does not use it; the alignment of clients is told by the exports"),
    ("segments_max", "larger than any request of so small an array"),
    ("stripe of a member", "as its chunk"),
];

/// Every field as text. A field that is added does not compile until it is named here.
#[expect(clippy::too_many_lines, reason = "one line for each field")]
fn fields(setup: &Setup) -> Vec<(&'static str, String)> {
    let Setup {
        shape,
        spares,
        array,
        data_offsets,
        data_sizes,
        shards,
        mix,
        clients,
        requests,
        rounds,
        starts_dirty,
        has_faults,
        has_crashes,
        opens_read_only,
        stops_while_starting,
        over_budget,
        pool_factor,
        discard,
        mail_delay_max,
        latency,
        spare_blocks,
        pass_window,
        image_one_in,
        kinds,
        is_long,
        roles,
        slow_disk,
        bits,
        has_logs,
        has_ppl,
        write_mostly,
        failfast,
        caches,
        slowness,
        differs_late,
    } = setup;
    let Geometry {
        size: member_size,
        logical_block,
        physical_block,
        chunk: member_chunk,
        stripe: member_stripe,
        io_max,
        segments_max,
        discard_granularity,
        fast_holes,
        fast_zeroes,
        volatile_cache,
    } = setup.geometry(0);
    let Shape { level, layout, chunk, slots, size, member_sizes } = shape;
    vec![
        ("level", level.to_string()),
        ("layout", layout.to_string()),
        ("chunk", chunk.to_string()),
        ("slots", slots.to_string()),
        ("size", size.to_string()),
        ("member_sizes", format!("{member_sizes:?}")),
        ("spares", spares.to_string()),
        ("array", array.to_string()),
        ("data_offsets", format!("{data_offsets:?}")),
        ("data_sizes", format!("{data_sizes:?}")),
        ("shards", shards.to_string()),
        ("mix", format!("{mix:?}")),
        ("clients", clients.to_string()),
        ("requests", requests.to_string()),
        ("rounds", rounds.to_string()),
        ("starts_dirty", starts_dirty.to_string()),
        ("has_faults", has_faults.to_string()),
        ("has_crashes", has_crashes.to_string()),
        ("opens_read_only", opens_read_only.to_string()),
        ("stops_while_starting", stops_while_starting.to_string()),
        ("over_budget", format!("{over_budget:?}")),
        ("pool_factor", pool_factor.to_string()),
        ("discard", format!("{discard:?}")),
        ("mail_delay_max", mail_delay_max.to_string()),
        ("latency", format!("{latency:?}")),
        ("spare_blocks", spare_blocks.to_string()),
        ("pass_window", pass_window.0.to_string()),
        ("image_one_in", image_one_in.to_string()),
        ("kinds", format!("{kinds:?}")),
        ("is_long", is_long.to_string()),
        ("roles", roles.to_string()),
        ("slow_disk", format!("{slow_disk:?}")),
        ("bits", bits.is_some().to_string()),
        ("bits.chunk", bits.map(|bits| bits.chunk).unwrap_or_default().to_string()),
        ("bits.clear_after", format!("{:?}", bits.map(|bits| bits.clear_after))),
        ("bits.are_set", bits.is_some_and(|bits| bits.are_set).to_string()),
        ("bits.write_behind", bits.map(|bits| bits.write_behind).unwrap_or_default().to_string()),
        ("has_logs", has_logs.to_string()),
        ("has_ppl", has_ppl.to_string()),
        ("write_mostly", format!("{write_mostly:?}")),
        ("failfast", format!("{failfast:?}")),
        ("caches", (caches.count() == data_sizes.len()).to_string()),
        ("slowness", format!("{slowness:?}")),
        ("differs_late", differs_late.to_string()),
        ("member_size", member_size.0.to_string()),
        ("logical_block", logical_block.0.to_string()),
        ("physical_block", physical_block.0.to_string()),
        ("chunk of a member", member_chunk.0.to_string()),
        ("stripe of a member", member_stripe.0.to_string()),
        ("io_max", io_max.0.to_string()),
        ("segments_max", segments_max.to_string()),
        ("discard_granularity", discard_granularity.0.to_string()),
        ("fast_holes", fast_holes.to_string()),
        ("fast_zeroes", fast_zeroes.to_string()),
        ("volatile_cache", volatile_cache.to_string()),
    ]
}

#[test]
fn every_field_of_a_setup_varies_or_is_listed() {
    let mut values: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut rng = Rng::new(48);
    for _ in 0..10_000 {
        for (name, value) in fields(&Setup::draw(&mut rng)) {
            values.entry(name).or_default().insert(value);
        }
    }
    let constant: Vec<&str> = values.iter().filter(|(_, seen)| seen.len() < 2).map(|(name, _)| *name).collect();
    let listed: Vec<&str> = FIXED.iter().map(|(name, _)| *name).collect();
    assert_eq!(constant, listed, "fields that never vary");
}
