//! Reports of arrays in the states that readers have to tell apart, for tests.
//! Owns: [`reports`]. Not here: what is made of them (`metrics`, `watch`).

use serde_json::{Value, json};
use uraid_control::report::Report;

fn requests(count: u64, bytes: u64, errors: u64) -> Value {
    json!({"count": count, "bytes": bytes, "errors": errors})
}

fn member(number: u32, slot: Option<u16>, state: &str) -> Value {
    let io = json!({
        "reads": requests(1000, 4_096_000, 0), "writes": requests(500, 2_048_000, 0), "flushes": requests(20, 0, 0),
        "discards": requests(0, 0, 0), "zeroes": requests(0, 0, 0), "read_elsewhere_sectors": 0, "bad_blocks": [],
        "slowest": {"kind": "write", "us": 12_345, "ended": 1_700_000_050}, "unanswered_ms": 0, "is_needed": false,
    });
    json!({"number": number, "slot": slot, "state": state, "path": format!("/dev/sd{}", letter(number)), "io": io})
}

fn times(counts: [u64; 4]) -> Value {
    json!({"counts": counts, "sum_ns": 250_000_000})
}

fn letter(number: u32) -> char {
    char::from_u32(u32::from('b') + number).expect("few members")
}

fn removed(slot: u16) -> Value {
    json!({"number": null, "slot": slot, "state": "removed", "path": null, "reason": null})
}

/// A raid6 of four members, 1 GiB each.
fn healthy() -> Value {
    let members: Vec<Value> = (0..4).map(|slot: u16| member(slot.into(), Some(slot), "active sync")).collect();
    json!({
        "name": "home", "set_name": "box:home", "device": "md127", "uuid": "10111213:14151617:18191a1b:1c1d1e1f",
        "metadata": "1.2", "level": "raid6", "layout": "left-symmetric", "chunk_sectors": 1024,
        "array_sectors": 4_194_304, "member_sectors": 2_097_152, "raid_devices": 4, "state": ["clean"],
        "created": 1_700_000_000, "updated": 1_700_000_100, "events": 42, "resync": null, "members": members,
        "server": {
            "pid": 4711, "uris": ["nbd+unix:///home?socket=/run/uraid/home.nbd"], "is_ready": true, "shards": 2,
            "last_record_us": 1234,
        },
        "counts": {
            "reads": 2000, "writes": 900, "rows_full": 100, "rows_modified": 700, "rows_reconstructed": 100,
            "rows_recovered": 0, "writes_absorbed": 7, "reads_retried": 0, "read_errors": 0,
        },
        "times": {
            "bounds_ns": [8192, 16384, 1_048_576],
            "reads": times([1200, 500, 299, 1]), "writes": times([0, 0, 850, 50]), "flushes": times([0, 0, 0, 20]),
        },
        "clients": {
            "exports": 1, "connections": 3, "connected": 1, "reads": 2000, "read_bytes": 8_192_000, "writes": 900,
            "written_bytes": 3_686_400, "flushes": 20, "trims": 0, "write_zeroes": 0, "caches": 0,
            "block_statuses": 0, "refused": 0, "failed": 0,
        },
        "consistency_policy": "resync",
        "pass_limits": {"min_kib": 1000, "max_kib": null, "share_percent": 15},
        "geometry": {"layout": 2, "chunk": 1024, "size": 2_097_152, "member_sizes": []},
    })
}

/// The healthy one with these changes of its fields.
fn with(changes: Value) -> Report {
    let mut report = healthy();
    for (key, value) in changes.as_object().expect("an object") {
        report[key] = value.clone();
    }
    serde_json::from_value(report).expect("a report")
}

fn half() -> Value {
    json!({"done": 1_048_576, "total": 2_097_152, "sectors_per_second": 204_800, "seconds_left": 6})
}

/// Each state by its name.
pub(crate) fn reports() -> Vec<(&'static str, Report)> {
    let in_sync = |slot: u16| member(slot.into(), Some(slot), "active sync");
    let mut failed = member(3, None, "faulty");
    failed["reason"] = json!("read: input/output error (errno 5)");
    failed["io"]["reads"] = requests(1000, 3_980_000, 17);
    failed["io"]["read_elsewhere_sectors"] = json!(136);
    let lost = [in_sync(0), in_sync(1), in_sync(2), removed(3), failed.clone()];
    let rebuilding = [in_sync(0), in_sync(1), in_sync(2), member(4, Some(3), "spare rebuilding"), failed.clone()];
    let replacing =
        [in_sync(0), in_sync(1), in_sync(2), in_sync(3), member(4, Some(2), "spare rebuilding replacement")];
    let with_spare = [in_sync(0), in_sync(1), in_sync(2), in_sync(3), member(4, None, "spare")];
    let mut write_mostly = [in_sync(0), in_sync(1)];
    write_mostly[1]["flags"] = json!(["writemostly"]);
    let mut slow = [in_sync(0), in_sync(1), in_sync(2), in_sync(3)];
    slow[1]["io"]["unanswered_ms"] = json!(12_900);
    slow[1]["io"]["is_needed"] = json!(true);
    slow[1]["io"]["bad_blocks"] = json!([[4096, 8], [5000, 1]]);
    let check = json!({
        "array": "home", "kind": "check", "end": "complete", "done": 2_097_152, "total": 2_097_152, "mismatched": 16,
        "corrected": 0, "healed": 8, "skipped": 0, "unreadable": 0,
    });
    let frozen = "/dev/sdc: no space left under the member (errno 28)";
    let mirror = json!({"layout": 0, "chunk": 0, "size": 2_097_152, "member_sizes": []});
    vec![
        ("healthy", with(json!({"members": with_spare, "last_check": check}))),
        ("degraded", with(json!({"state": ["active", "degraded"], "members": lost}))),
        (
            "recovering",
            with(json!({"state": ["active", "degraded", "recovering"], "members": rebuilding, "recovery": half()})),
        ),
        (
            "resync pending",
            with(
                json!({"state": ["active", "resyncing"], "resync": half(), "passes_frozen": true, "maintenance_until": 1_700_009_000}),
            ),
        ),
        ("resyncing", with(json!({"state": ["active", "resyncing"], "resync": half()}))),
        ("checking", with(json!({"state": ["clean", "checking"], "check": half()}))),
        ("replacement", with(json!({"state": ["clean", "recovering"], "members": replacing, "recovery": half()}))),
        (
            "write-mostly",
            with(json!({
                "level": "raid1", "layout": null, "chunk_sectors": 0, "raid_devices": 2, "members": write_mostly,
                "geometry": mirror, "array_sectors": 2_097_152, "consistency_policy": "bitmap",
                "bitmap": {"chunk_sectors": 131_072, "chunks": 16, "write_behind": 256, "dirty": 3, "pages_dirty": 1},
            })),
        ),
        ("read-only", with(json!({"state": ["clean", "read-only"], "read_only": "by command"}))),
        ("frozen", with(json!({"state": ["active", "frozen"], "frozen": frozen, "members": slow}))),
        ("starting", with(json!({"state": ["clean", "starting"]}))),
    ]
}
