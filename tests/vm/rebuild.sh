# The guest's half of the arrays whose recovery is begun by one side and ended by the other. The first argument is the
# task: `begin` cuts the kernel off in the middle, `finish` gives it the array again. Each other one is
# NAME:LEVEL:LAYOUT:MEMBERS:METADATA:HOW:END:OURS; the members of NAME are /disk/NAME-0.., one more than it has slots but
# where HOW is `create` or `resync`. HOW `fail`, `copy`: uraid fails the member, or copies it to the spare; the kernel only
# makes the array and its spare. HOW `resync`: its first resync is cut off. OURS is what uraid does in between:
# `recovered` (all of the recovery), `stopped` (a part of it).
# Tells its results as lines `fact NAME KEY VALUE`; all other lines are for a person.

# disks NAME COUNT [LOST]: the paths of all but the lost one
disks() {
    at=0
    while [ $at -lt $2 ]; do
        [ "$at" = "$3" ] || readlink -f /disk/$1-$at
        at=$((at + 1))
    done
}

# Of a large array the first and the last 8 MiB: the guest is slow, and the rest is zeroes.
sha() { content | sha256sum | cut -d ' ' -f 1; }
content() {
    kib=$(($(blockdev --getsize64 $md) / 1024))
    if [ $kib -le 16384 ]; then
        cat $md
    else
        dd if=$md bs=1k count=8192 2>/dev/null
        dd if=$md bs=1k skip=$((kib - 8192)) 2>/dev/null
    fi
}
fill() {
    kib=$(($(blockdev --getsize64 $md) / 1024))
    if [ $kib -le 16384 ]; then
        head -c $((kib * 1024)) /dev/urandom | dd of=$md bs=64k 2>/dev/null
    else
        head -c 8388608 /dev/urandom | dd of=$md bs=64k 2>/dev/null
        head -c 8388608 /dev/urandom | dd of=$md bs=1k seek=$((kib - 8192)) 2>/dev/null
    fi
    sync
}

# wait_for WHAT COMMAND...
wait_for() {
    what=$1
    shift
    for turn in $(seq 600); do
        "$@" && return
        sleep 0.1
    done
    echo "$name: never $what: $(cat $sys/sync_action), degraded $(cat $sys/degraded), $(cat $sys/sync_completed)"
}

is_paused() { [ "$(cat $sys/sync_completed | cut -d ' ' -f 1)" = $pause ]; }
# Marks the array clean, because the timer that would do it can be lost on a busy host.
is_clean() {
    echo clean >$sys/array_state 2>/dev/null
    [ "$(cat $sys/array_state)" = clean ]
}
is_frozen() { [ "$(cat $sys/sync_action)" = frozen ]; }
is_idle() { [ "$(cat $sys/sync_action)" = idle ]; }
# A recovery starts a moment after the start: idle counts only when the new member is in sync.
recovered() { cut -d ' ' -f 1 <$sys/sync_completed; }
is_recovering() { cat $sys/sync_action | grep -q -E '^(recover|resync)$' && recovered | grep -q '^[1-9]'; }
limits() {
    echo $1 >/proc/sys/dev/raid/speed_limit_min
    echo $2 >/proc/sys/dev/raid/speed_limit_max
}
is_rebuilt() { is_idle && [ "$(cat $sys/degraded)" = 0 ] && state_of $new | grep -q in_sync; }
state_of() { cat $sys/dev-$(basename $(readlink -f /disk/$name-$1))/state 2>/dev/null; }

begin() {
    options="--level=$level --raid-devices=$count --metadata=$metadata"
    [ -z "$layout" ] || options="$options --layout=$layout"
    [ $level = 1 ] || options="$options --chunk=64"
    # Slow enough to be caught at work.
    limits 1 1
    case $how in
    create) mdadm --quiet --create $md --run $options $(disks $name $count) ;;
    # A new raid4 or raid5 is resynced only with --force.
    resync) mdadm --quiet --create $md --run --force $options $(disks $name $count) ;;
    spare | fail | copy) mdadm --quiet --create $md --run --assume-clean $options --spare-devices=1 $(disks $name $((count + 1))) ;;
    *) mdadm --quiet --create $md --run --assume-clean $options $(disks $name $count) ;;
    esac || return
    if [ $how = fail ] || [ $how = copy ]; then
        fill
        echo "fact $name wrote $(sha)"
        mdadm --quiet --stop $md
        return
    fi
    # Where it is to pause cannot be said while it runs.
    echo frozen >$sys/sync_action
    wait_for frozen is_frozen
    echo $pause >$sys/sync_max
    # The members of an array that is assumed clean are empty, so its parity is right as it is.
    fill
    lost=$(readlink -f /disk/$name-1)
    case $how in
    spare) mdadm --quiet $md --fail $lost ;;
    add)
        mdadm --quiet $md --fail $lost
        mdadm --quiet $md --remove $lost
        mdadm --quiet $md --add $(readlink -f /disk/$name-$count)
        ;;
    replace)
        mdadm --quiet $md --add $(readlink -f /disk/$name-$count)
        mdadm --quiet $md --replace $lost
        ;;
    esac
    echo 100000 >$sys/sync_speed_max
    echo 100000 >$sys/sync_speed_min
    echo idle >$sys/sync_action
    wait_for paused is_paused
    echo "fact $name wrote $(sha)"
    wait_for clean is_clean
    if [ $end = cut ]; then
        touch /run/power-cut
    else
        mdadm --quiet --stop $md
    fi
}

finish() {
    new=$count
    { [ $how = create ] || [ $how = resync ]; } && new=$((count - 1))
    old=1
    { [ $how = create ] || [ $how = resync ]; } && old=
    # The member that failed stays away, as its operator would leave it.
    replaces=no
    { [ $how = replace ] || [ $how = copy ]; } && replaces=yes
    # One that is being replaced is still at work.
    [ $replaces$ours = yesstopped ] && old=
    all=$((count + 1))
    { [ $how = create ] || [ $how = resync ]; } && all=$count
    given=$old
    # mdadm must leave this one out by itself: it failed, or was replaced.
    { [ $how = fail ] || [ $replaces = yes ]; } && given=
    limits 1 1
    mdadm --quiet --assemble --run $md $(disks $name $all $given) || return
    # At once: what uraid has recovered needs no recovery.
    if [ $ours = stopped ]; then
        wait_for recovering is_recovering
        echo "fact $name from $(recovered)"
    fi
    [ $ours = recovered ] || {
        echo 200000 >$sys/sync_speed_max
        echo 200000 >$sys/sync_speed_min
        wait_for rebuilt is_rebuilt
    }
    limits 1000 200000
    echo "fact $name state $(state_of $new | grep -o in_sync)"
    echo "fact $name degraded $(cat $sys/degraded)"
    echo check >$sys/sync_action
    wait_for checked is_idle
    echo "fact $name mismatches $(cat $sys/mismatch_cnt)"
    echo "fact $name read $(sha)"
    mdadm --quiet --stop $md
    # What was rebuilt stands in for slot 0.
    lost=$(readlink -f /disk/$name-0)
    mdadm --quiet --assemble --readonly --run $md $(disks $name $all "$old" | grep -v "^$lost$") || return
    echo "fact $name rebuilt $(sha)"
    mdadm --quiet --stop $md
}

task=$1
shift
number=0
for spec; do
    IFS=: read -r name level layout count metadata how end ours <<END
$spec
END
    # Sectors of each member that are rebuilt before the cut.
    pause=1024
    { [ $ours = stopped ] || [ $how = resync ]; } && pause=32768
    md=/dev/md$number
    sys=/sys/block/md$number/md
    # An array that is to be cut off keeps its device.
    number=$((number + 1))
    $task
done
sync
