#!/usr/bin/env python3
"""What programs that read mdadm's words understand of uraid's.

Usage: read.py FOLDER PROGRAMS. FOLDER has `mdstat` (the text of `uraid mdstat`), `detail-N` (that of `uraid detail`),
`detail-export-N`, `detail-scan`, `examine-export-N-NUMBER` and `examine-brief-N` of the members, `metrics` (that of
`uraid metrics --once`) and `report.json` (the objects of `uraid mdstat --json`, taken before and after the text). What a
reader understood is compared with the JSON. A reader that is a package is run unchanged; libblockdev, udisks, curtin and
ReaR, which are none that runs without a system of its own, are the keys, columns and patterns that they look for, in words
of this file. PROGRAMS has those that are not Python's. Prints a line for each reader: `jc: ok`, or what is wrong.

A figure that moves between the two reports may be anything between them.
"""

import contextlib
import io
import json
import pathlib
import re
import subprocess
import sys

FOLDER, PROGRAMS = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
TEXT = (FOLDER / "mdstat").read_text()
BEFORE, AFTER = json.loads((FOLDER / "report.json").read_text())


class Wrong(Exception):
    """A reader understood something else than is so."""


def equal(what, found, expected):
    if found != expected:
        raise Wrong(f"{what}: read {found!r}, expected {expected!r}")


def present(report):
    return [member for member in report["members"] if member["path"] is not None]


def in_sync(report):
    return sum(member["state"] == "active sync" for member in report["members"])


def has_slots(report):
    return report["level"] not in ("raid0", "linear") and not is_inactive(report)


def is_inactive(report):
    return report["state"][-1] in ("starting", "stopping", "stopped")


def blocks(report):
    return report["array_sectors"] // 2


def numbers(report):
    return sorted(member["number"] for member in present(report))


def pass_of(report):
    """The pass that moves: its kernel's word and how far it is, in KiB."""
    words = {"resync": "resync", "recovery": "recovery", "check": "check", "repair": "resync"}
    for key, word in words.items():
        if report[key] is not None:
            moves = {"resyncing", "recovering", "checking", "repairing"} & set(report["state"])
            return word, report[key]["done"] // 2, bool(moves) and not report["passes_frozen"]
    return None


def check_pass(what, device, word, done):
    """`done`: in KiB."""
    states = [pass_of(array) for reports in (BEFORE, AFTER) for array in reports if array["device"] == device]
    if all(state is None for state in states):
        raise Wrong(f"{what}: a {word}, and there is none")
    equal(what, word in [state[0] for state in states if state], True)
    least = min(state[1] if state else 0 for state in states)
    most = max(state[1] if state else done for state in states)
    if not least <= done <= most:
        raise Wrong(f"{what}: {done} KiB done, expected {least} to {most}")


def pymdstat():
    from pymdstat import MdStat

    with contextlib.redirect_stdout(io.StringIO()):
        stat = MdStat(str(FOLDER / "mdstat"))
    equal("arrays", sorted(stat.arrays()), sorted(report["device"] for report in BEFORE))
    for report in BEFORE:
        device = report["device"]
        failed = any(member["state"] == "faulty" for member in report["members"])
        # It takes (read-only) for two words, of the kernel, too.
        read_only = "read-only" in report["state"]
        equal("type", stat.type(device), None if is_inactive(report) or read_only else report["level"])
        if not failed and not read_only:
            # It drops all between the first and the last bracket.
            marked = any("writemostly" in member["flags"] or member["state"] != "active sync" for member in present(report))
            if not marked:
                equal("components", sorted(int(role) for role in
                      stat.get_stats()["arrays"][device]["components"].values()), numbers(report))
        if has_slots(report):
            equal("available", stat.available(device), report["raid_devices"])
            equal("used", stat.used(device), in_sync(report))


def mdstat():
    import mdstat as reader

    found = reader.parse(str(FOLDER / "mdstat"))
    equal("arrays", sorted(found["devices"]), sorted(report["device"] for report in BEFORE))
    for report in BEFORE:
        device = found["devices"][report["device"]]
        equal("numbers", sorted(disk["number"] for disk in device["disks"].values()), numbers(report))
        faulty = [disk["number"] for disk in device["disks"].values() if disk["faulty"]]
        equal("faulty", sorted(faulty), [m["number"] for m in present(report) if m["state"] == "faulty"])
        spare = [disk["number"] for disk in device["disks"].values() if disk["spare"]]
        equal("spares", sorted(spare), [m["number"] for m in present(report) if m["state"] == "spare"])
        equal("read-only", device["read_only"], "read-only" in report["state"])
        equal("blocks", device["status"]["blocks"], blocks(report))
        if has_slots(report):
            equal("slots", device["status"]["raid_disks"], report["raid_devices"])
            equal("in sync", device["status"]["non_degraded_disks"], in_sync(report))
        if device["resync"] and device["resync"]["total"] is not None:
            check_pass("pass", report["device"], device["resync"]["operation"], device["resync"]["resynced"])
        equal("bitmap", device["bitmap"] is not None, report["bitmap"] is not None)


def insights():
    from insights.parsers.mdstat import Mdstat
    from insights.tests import context_wrap

    # What it refuses of the kernel's text, it may refuse here: two words, and members that are not one for each slot.
    refused = []
    if any("read-only" in report["state"] for report in BEFORE):
        refused.append("md0 : active (read-only) raid1 sda[0] sdb[1]\n      8 blocks super 1.2 [2/2] [UU]\n")
    if any("frozen" in report["state"] for report in BEFORE):
        refused.append("md0 : broken raid1 sda[0] sdb[1]\n      8 blocks super 1.2 [2/2] [UU]\n")
    if any(has_slots(report) and len(present(report)) != report["raid_devices"] for report in BEFORE):
        refused.append("md0 : active raid1 sda[0] sdb[1] sdc[2](S)\n      8 blocks super 1.2 [2/2] [UU]\n")
    for kernel in refused:
        try:
            Mdstat(context_wrap(f"Personalities : [raid1]\n{kernel}      \nunused devices: <none>\n"))
        except Exception:
            return
        raise Wrong(f"it reads the kernel's text: compare uraid's with {kernel}")
    found = Mdstat(context_wrap(TEXT))
    equal("arrays", sorted(found.mds), sorted(report["device"] for report in BEFORE))
    for report in BEFORE:
        device = found.mds[report["device"]]
        equal("active", device["active"], not is_inactive(report))
        if not is_inactive(report):
            equal("raid", device["raid"], report["level"])
        equal("blocks", device["blocks"], blocks(report))
        equal("roles", sorted(member["role"] for member in device["devices"]), numbers(report))


def jc():
    import jc as reader

    for number, report in enumerate(BEFORE):
        found = reader.parse("mdadm", (FOLDER / f"detail-{number}").read_text(), quiet=True)
        equal("device", found["device"], "/dev/md/" + report["name"])
        equal("raid level", found["raid_level"], report["level"])
        equal("devices", found["raid_devices"], report["raid_devices"])
        equal("uuid", found["uuid"], report["uuid"])
        allowed = {"clean", "active", "readonly", "inactive", "broken", "degraded", "FAILED", "recovering", "resyncing",
                   "checking", "reshaping"}
        waits = "resyncing" in report["state"] and report["passes_frozen"]
        equal("pending", found["state"].endswith(" (PENDING)"), waits)
        state = set(found["state"].removesuffix(" (PENDING)").split(", "))
        equal("state", state - allowed, set())
        if "frozen" not in report["state"]:
            equal("degraded", "degraded" in state, "degraded" in report["state"])
        equal("rows", len(found["device_table"]), len(report["members"]))
        for row, member in zip(found["device_table"], report["members"]):
            equal("number", row["number"], member["number"])
            equal("slot", row["raid_device"], member["slot"])
            equal("path", row["device"], member["path"])
            words = " ".join([member["state"], *member["flags"]])
            equal("words", "".join(row["state"]), words.replace(" ", ""))


def procfs():
    done = subprocess.run([PROGRAMS / "procfs" / "read", FOLDER], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Wrong(done.stderr.strip())
    found = {device["Name"]: device for device in json.loads(done.stdout)}
    equal("arrays", sorted(found), sorted(report["device"] for report in BEFORE))
    for report in BEFORE:
        device = found[report["device"]]
        members = present(report)
        equal("blocks", device["BlocksTotal"], blocks(report))
        equal("failed", device["DisksFailed"], sum(member["state"] == "faulty" for member in members))
        equal("spare", device["DisksSpare"], sum(member["state"] == "spare" for member in members))
        equal("numbers", sorted(it["DescriptorIndex"] for it in device["Devices"]), numbers(report))
        if is_inactive(report):
            equal("state", device["ActivityState"], "inactive")
            continue
        equal("type", device["Type"], report["level"])
        if has_slots(report):
            equal("total", device["DisksTotal"], report["raid_devices"])
            equal("active", device["DisksActive"], in_sync(report))
        words = {"resyncing": "resync", "recovering": "recovery", "checking": "check"}
        word = words.get(device["ActivityState"])
        if word and device["BlocksSynced"] != 0:
            check_pass("pass", report["device"], word, device["BlocksSynced"])


def check_raid():
    # It opens /proc/mdstat: give it a /proc of its own.
    script = 'mount -t tmpfs none /proc && cp "$1/mdstat" /proc/mdstat && exec perl "$2" -p mdstat'
    program = PROGRAMS / "check_raid" / "usr/lib/nagios/plugins/check_raid"
    words = ["unshare", "-rm", "sh", "-c", script, "sh", str(FOLDER), str(program)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if not BEFORE:
        # "No active plugins"
        return
    said = done.stdout
    for report in BEFORE:
        part = re.search(rf"\b{report['device']}\(([^)]*)\):(.*?)(?=, md[0-9]+\(|\]|$)", said)
        if part is None:
            raise Wrong(f"{report['device']} is not in {said!r} {done.stderr!r}")
        if is_inactive(report):
            continue
        equal("level", part[1].split()[-1], report["level"])
        if has_slots(report):
            in_slot = {member["slot"] for member in report["members"] if member["state"] == "active sync"}
            picture = "".join("U" if slot in in_slot else "_" for slot in range(report["raid_devices"]))
            equal("slots", re.search(r"([U_]+)( \(|$)", part[2])[1], picture)
    waits = any(pass_of(report) for report in BEFORE)
    if any("degraded" in report["state"] for report in BEFORE) and not waits:
        equal("exit code", done.returncode, 2)
    elif not waits and not any(member["state"] == "faulty" for report in BEFORE for member in report["members"]):
        equal("exit code", done.returncode, 0)


def pairs(name):
    """Lines KEY=VALUE."""
    lines = (FOLDER / name).read_text().splitlines()
    wrong = [line for line in lines if not re.fullmatch(r"[A-Za-z0-9_]+=.*", line)]
    equal(f"{name}: lines that are no KEY=VALUE", wrong, [])
    found = dict(line.split("=", 1) for line in lines)
    equal(f"{name}: keys", len(found), len(lines))
    return found


def examined(number):
    """The members of an array that were examined: their numbers and the file of each."""
    files = sorted(FOLDER.glob(f"examine-export-{number}-*"))
    return {int(file.name.rsplit("-", 1)[1]): file.name for file in files}


def uuid_by_four(uuid):
    """libblockdev makes the usual form of an UUID of mdadm's four groups."""
    digits = uuid.replace(":", "")
    equal("digits of an UUID", len(digits), 32)
    return "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]])


def libblockdev():
    for number, report in enumerate(BEFORE):
        # Detail: it splits lines at the first " : ", and reads these as numbers.
        lines = (FOLDER / f"detail-{number}").read_text().splitlines()
        table = {key.strip(): value.strip() for key, _, value in (line.partition(" : ") for line in lines) if value}
        equal("level", table["Raid Level"], report["level"])
        equal("version", table["Version"], report["metadata"])
        equal("size", int(table["Array Size"].split()[0]), blocks(report))
        equal("devices", int(table["Raid Devices"]), report["raid_devices"])
        equal("total", int(table["Total Devices"]), len(present(report)))
        equal("active", int(table["Active Devices"]), in_sync(report))
        failed = sum(member["state"] == "faulty" for member in report["members"])
        equal("failed", int(table["Failed Devices"]), failed)
        int(table["Working Devices"]), int(table["Spare Devices"])
        equal("clean", "clean" in table["State"] or "active" in table["State"] or "read" in table["State"], True)
        equal("uuid", uuid_by_four(table["UUID"]), uuid_by_four(report["uuid"]))
        # Examine: keys, and the second word of the ARRAY line.
        for file in examined(number).values():
            found = pairs(file)
            equal("devices", int(found["MD_DEVICES"]), report["raid_devices"])
            equal("level", found["MD_LEVEL"], report["level"])
            equal("uuid", uuid_by_four(found["MD_UUID"]), uuid_by_four(report["uuid"]))
            uuid_by_four(found["MD_DEV_UUID"])
            int(found["MD_EVENTS"]), int(found["MD_UPDATE_TIME"])
            # mdadm leaves it out where members may differ in size.
            if report["level"] not in ("raid0", "linear"):
                equal("size", re.fullmatch(r"[0-9.]+[KMGT]?B", found["MD_ARRAY_SIZE"]) is not None, True)
        brief = (FOLDER / f"examine-brief-{number}").read_text().split()
        equal("line", brief[0], "ARRAY")
        equal("name", brief[1].removeprefix("/dev/md/"), report["name"])
        metadata = [word.split("=")[1] for word in brief if word.startswith("metadata=")]
        equal("metadata", metadata, [report["metadata"]])


def udisks():
    # Properties that udev's rules import from `--export`.
    for number, report in enumerate(BEFORE):
        found = pairs(f"detail-export-{number}")
        equal("level", found["MD_LEVEL"], report["level"])
        equal("devices", int(found["MD_DEVICES"]), report["raid_devices"])
        equal("uuid", found["MD_UUID"], report["uuid"])
        equal("name", found["MD_NAME"].rsplit(":", 1)[-1], report["name"])
        equal("metadata", found["MD_METADATA"], report["metadata"])
        for file in examined(number).values():
            member = pairs(file)
            equal("the array of a member", (member["MD_UUID"], member["MD_NAME"]), (found["MD_UUID"], found["MD_NAME"]))


def curtin():
    for number, report in enumerate(BEFORE):
        found = pairs(f"detail-export-{number}")
        devices = {key[:-4]: value for key, value in found.items() if re.fullmatch(r"MD_DEVICE_\w+_DEV", key)}
        roles = {key[:-5]: value for key, value in found.items() if re.fullmatch(r"MD_DEVICE_\w+_ROLE", key)}
        equal("one role for each device", sorted(devices), sorted(roles))
        working = [member for member in present(report) if member["state"] != "faulty"]
        named = set(devices.values()) - {m["path"] for m in present(report) if m["state"] == "faulty"}
        equal("devices", named, {member["path"] for member in working})
        spares = {devices[key] for key, role in roles.items() if role == "spare"}
        equal("spares", spares >= {m["path"] for m in report["members"] if m["state"] == "spare"}, True)
        slots = {devices[key]: int(role) for key, role in roles.items() if role != "spare"}
        for member in report["members"]:
            if member["state"] == "active sync":
                equal("role", slots[member["path"]], member["slot"])


def rear():
    # `while read array device rest`, then fields of the text between colons, without blanks.
    lines = [line.split(None, 2) for line in (FOLDER / "detail-scan").read_text().splitlines()]
    equal("arrays", sorted(words[1].removeprefix("/dev/md/") for words in lines), sorted(r["name"] for r in BEFORE))
    for array, _, rest in lines:
        equal("array", array in ("ARRAY", "INACTIVE-ARRAY"), True)
        equal("metadata", re.search(r"metadata=(\S+)", rest)[1] in {report["metadata"] for report in BEFORE}, True)
        equal("uuid", re.search(r"UUID=(\S+)", rest)[1] in {report["uuid"] for report in BEFORE}, True)
    for number, report in enumerate(BEFORE):
        text = (FOLDER / f"detail-{number}").read_text()

        def cut(label):
            line = next(line for line in text.splitlines() if label in line)
            return line.replace(" ", "").split(":", 1)[1]

        equal("level", cut("Raid Level"), report["level"])
        equal("uuid", cut("UUID"), report["uuid"])
        equal("devices", int(cut("Raid Devices")), report["raid_devices"])
        if report["level"] not in ("raid1", "linear"):
            equal("chunk", int(re.sub("[a-zA-Z]", "", cut("Chunk Size"))) * 2, report["chunk_sectors"])
        rows = text.split("RaidDevice State\n")[1].split("\n")
        last = [row.split()[-1] for row in rows if row and not row.split()[-1] == "removed"]
        equal("paths", last, [member["path"] for member in present(report)])


def samples():
    """The samples of the metrics: the name with labels, and the value."""
    lines = [line for line in (FOLDER / "metrics").read_text().splitlines() if not line.startswith("#")]
    return {key: float(value) for key, value in (line.rsplit(" ", 1) for line in lines)}


def node_md():
    """`uraid metrics` says of md what procfs understands in the text."""
    done = subprocess.run([PROGRAMS / "procfs" / "read", FOLDER], capture_output=True, text=True, check=True)
    found = samples()
    states = {"active": "active", "inactive": "inactive", "recovering": "recovering", "resyncing": "resync", "checking": "check"}
    for device in json.loads(done.stdout):
        label = f'{{device="{device["Name"]}"'
        for activity, state in states.items():
            value = found[f'node_md_state{label},state="{state}"}}']
            equal(f"state {state}", value, float(device["ActivityState"] == activity))
        disks = {"active": "DisksActive", "failed": "DisksFailed", "spare": "DisksSpare", "down": "DisksDown"}
        for state, key in disks.items():
            equal(f"disks {state}", found[f'node_md_disks{label},state="{state}"}}'], device[key])
        equal("required", found[f"node_md_disks_required{label}}}"], device["DisksTotal"])
        equal("blocks", found[f"node_md_blocks{label}}}"], device["BlocksTotal"])
        synced = found[f"node_md_blocks_synced{label}}}"]
        # The text is older than the metrics: a pass has moved on, perhaps from its very start.
        if device["ActivityState"] not in ("recovering", "resyncing", "checking"):
            equal("synced", synced, device["BlocksSynced"])
        else:
            equal("synced is behind the text", device["BlocksSynced"] <= synced <= device["BlocksTotal"], True)


def promtool():
    text = (FOLDER / "metrics").read_text()
    program = PROGRAMS / "prometheus" / "usr/bin/promtool"
    done = subprocess.run([program, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    # Its advice on the names of node_exporter's and of a ratio is no error.
    equal("exit code", (done.returncode, done.stdout + done.stderr), (0, ""))


READERS = {"libblockdev": libblockdev, "udisks": udisks, "curtin": curtin, "rear": rear, "node_md": node_md, "promtool": promtool,
           "procfs": procfs, "check_raid": check_raid, "pymdstat": pymdstat, "mdstat": mdstat, "insights": insights, "jc": jc}
status = 0
for name, read in READERS.items():
    try:
        read()
        print(f"{name}: ok")
    except Exception as error:  # whatever a reader raises is what its user would see
        print(f"{name}: {type(error).__name__}: {error}")
        status = 1
sys.exit(status)
