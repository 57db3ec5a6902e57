# The guest's half of the raid5 arrays with a partial parity log that are cut off while they are written. The first argument
# is the task, see below. Each other one is NAME:LAYOUT:MEMBERS:METADATA:HOW:MAKER:AWAY; the members of NAME are
# /disk/NAME-0.., its whole content goes to /disk/NAME-out. HOW is `whole`, or `lost`: then a member, AWAY, is lost with the
# crash. An array whose MAKER is not `kernel` is there already.
#   first    makes the array, fills it, and is cut off while it writes
#   second   starts the array that uraid was killed in, tells what it reads, checks, and is cut off while it writes
#   third    starts the array that uraid has stopped, tells what it reads, checks
# Writes go round in the array, by the table in writers.rs; what is written comes from /disk/patterns.
# Tells its results as lines `fact NAME KEY VALUE`; all other lines are for a person.

# disks [LOST]: the paths of all but the lost one
disks() {
    at=0
    while [ $at -lt $count ]; do
        [ "$at" = "$1" ] || readlink -f /disk/$name-$at
        at=$((at + 1))
    done
}

# writer NUMBER FIRST STEP COUNT WIDE PIECE: see `Writer`. Pieces below 4 KiB are not written directly, all of a unit are in
# flight at once then.
writer() {
    turn=0
    while dd if=/run/patterns of=$md bs=$6 count=$(($5 * 65536 / $6)) skip=$(((turn * 7 + $1 * 13) % 59 * 65536)) \
        seek=$((($2 + turn % $4 * $3) * 65536)) iflag=skip_bytes oflag=seek_bytes,direct conv=notrunc,fsync 2>/run/$name-$1; do
        turn=$((turn + 1))
        echo "fact $name writer$1 $turn"
    done
    echo "$name: writer $1: $(cat /run/$name-$1)"
}
write_all() {
    while read -r line; do writer $line & done </run/$name-writers
}

# A resync or recovery begins a moment after the start, or after the member's coming.
until_idle() {
    for turn in $(seq 600); do
        sleep 0.1
        [ $turn -gt 4 ] && [ "$(cat $sys/sync_action)" = idle ] && return
    done
    echo "$name: never idle: $(cat $sys/sync_action), degraded $(cat $sys/degraded)"
}
tell() {
    echo "fact $name size $(blockdev --getsize64 $md)"
    echo "fact $name policy $(cat $sys/consistency_policy)"
    echo "fact $name detail $(mdadm --detail $md | sed -n 's/^ *Consistency Policy : //p')"
    dd if=$md of=$(readlink -f /disk/$name-out) bs=64k conv=notrunc 2>/dev/null
}
check() {
    until_idle
    echo "fact $name degraded $(cat $sys/degraded)"
    echo check >$sys/sync_action
    until_idle
    echo "fact $name mismatches $(cat $sys/mismatch_cnt)"
}

first() {
    if [ $maker = kernel ]; then
        mdadm --quiet --create $md --run --assume-clean --level=5 --raid-devices=$count --metadata=$metadata \
            --layout=$layout --chunk=64 --consistency-policy=ppl $(disks) || return
        chunks=$(($(blockdev --getsize64 $md) / 65536))
        for turn in 0 1 2; do
            [ $chunks -le $((turn * 61)) ] || dd if=/run/patterns of=$md bs=64k seek=$((turn * 61)) conv=notrunc 2>/dev/null
        done
        sync
    else
        mdadm --quiet --assemble $md $(disks) || return
    fi
    tell
}

second() {
    if [ $how = whole ]; then
        mdadm --quiet --assemble $md $(disks) || return
        tell
    else
        mdadm --quiet --assemble --run $md $(disks $away) || return
        tell
        # mdadm gives a former member of the array its place only after this.
        mdadm --quiet --zero-superblock $(readlink -f /disk/$name-$away)
        mdadm --quiet $md --add $(readlink -f /disk/$name-$away)
    fi
    check
}

third() {
    if [ $how = whole ]; then
        mdadm --quiet --assemble $md $(disks) || return
        tell
        check
    else
        mdadm --quiet --assemble --run $md $(disks $away) || return
        tell
    fi
    mdadm --quiet --stop $md
}

task=$1
shift
cat $(readlink -f /disk/patterns) >/run/patterns
number=0
for spec; do
    IFS=: read -r name layout count metadata how maker away writers <<END
$spec
END
    md=/dev/md$number
    sys=/sys/block/md$number/md
    number=$((number + 1))
    $task
    [ $task = third ] || echo "$writers" | tr ';,' '\n ' >/run/$name-writers
done
sync
[ $task = third ] && exit
# All arrays are written at once, and cut off at once.
number=0
for spec; do
    name=${spec%%:*}
    md=/dev/md$number
    number=$((number + 1))
    [ -e /sys/block/${md#/dev/}/md/array_state ] && write_all
done
sleep 6
# The host then ends the machine, with the requests that it has not done. If it does not, the first process does.
touch /run/power-cut
(
    sleep 0.5
    echo power-cut
) &
