# The guest's half of the handover of degraded arrays. The first argument is the task: `write` or `take-over`; each other
# one is NAME:LEVEL:MEMBERS:METADATA, its members are /disk/NAME-0.. Slot 1 is the one that goes missing.
# Tells its results as lines `fact NAME KEY VALUE`; all other lines are for a person.
md=/dev/md0
sys=/sys/block/md0/md

# disks NAME COUNT [LOST]: the paths of all but the lost one
disks() {
    slot=0
    while [ $slot -lt $2 ]; do
        [ "$slot" = "$3" ] || readlink -f /disk/$1-$slot
        slot=$((slot + 1))
    done
}

sha() { sha256sum <$md | cut -d ' ' -f 1; }

stop() { mdadm --quiet --stop $md; }

# A recovery starts a moment after the disk was added: idle counts only when nothing is degraded any more.
until_whole() {
    for turn in $(seq 600); do
        [ "$(cat $sys/sync_action) $(cat $sys/degraded)" = "idle 0" ] && return
        sleep 0.1
    done
    echo "$1: $(cat $sys/sync_action), degraded $(cat $sys/degraded) for ever"
}

# The array is made whole, filled, and then filled in part without slot 1.
write() {
    mdadm --quiet --create $md --run --assume-clean --metadata=$4 --level=$2 --raid-devices=$3 $(disks $1 $3) || return
    head -c 1500000 /dev/urandom | dd of=$md bs=64k conv=notrunc 2>/dev/null
    stop
    mdadm --quiet --assemble --run $md $(disks $1 $3 1) || return
    head -c 700001 /dev/urandom | dd of=$md bs=64k conv=notrunc 2>/dev/null
    sync
    echo 3 >/proc/sys/vm/drop_caches
    echo "fact $1 left $(sha)"
    stop
}

take_over() {
    mdadm --quiet --assemble --run $md $(disks $1 $3 1) || return
    echo "fact $1 read $(sha)"
    mdadm --quiet $md --add $(readlink -f /disk/$1-1)
    until_whole $1
    echo "fact $1 missing $(cat $sys/degraded)"
    echo check >$sys/sync_action
    while [ "$(cat $sys/sync_action)" != idle ]; do sleep 0.1; done
    echo "fact $1 mismatches $(cat $sys/mismatch_cnt)"
    stop
    mdadm --quiet --assemble --readonly --run $md $(disks $1 $3 0) || return
    echo "fact $1 rebuilt $(sha)"
    stop
}

task=$1
shift
for spec; do
    IFS=: read -r name level count metadata <<END
$spec
END
    case $task in
    write) write $name $level $count $metadata ;;
    take-over) take_over $name $level $count $metadata ;;
    esac
done
sync
