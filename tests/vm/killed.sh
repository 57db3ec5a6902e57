# The guest's half of the arrays that uraid left in the middle of a recovery or a replacement. The first argument is how many
# bytes of a disk each reading has. Each other one is NAME:SLOT:NEW:GIVEN:OTHERS:END; the members of NAME are /disk/NAME-0..,
# what is read goes to /disk/NAME-out, one reading behind the other. NEW is recovered, or copied to, in SLOT. mdadm is given
# GIVEN. Each of OTHERS is left out once, in the end. END is `dirty`, or `clean`: then the kernel goes on from what uraid
# recorded.
# Tells its results as lines `fact NAME KEY VALUE`; all other lines are for a person.
md=/dev/md0
sys=/sys/block/md0/md

# paths NUMBER,...: of members
paths() {
    for at in $(echo $1 | tr , ' '); do readlink -f /disk/$name-$at; done
}
limits() {
    echo $1 >/proc/sys/dev/raid/speed_limit_min
    echo $2 >/proc/sys/dev/raid/speed_limit_max
}

# start OPTIONS...: whether mdadm starts it. One that it only assembles is stopped.
start() {
    mdadm --assemble "$@" $md $(paths $given) >/run/said 2>&1
    # Read once: a device that mdadm has just stopped may go away between two looks.
    case "$(cat $sys/array_state 2>/dev/null)" in '' | inactive | clear) ;; *) return ;; esac
    mdadm --quiet --stop $md 2>/dev/null
    return 1
}

# What is to be done begins a moment after the start.
is_settled() {
    [ "$(cat $sys/sync_action)" = idle ] && [ "$(cat $sys/degraded)" = 0 ] && [ "$(cat $sys/resync_start)" = none ]
}
until_settled() {
    often=0
    for turn in $(seq 600); do
        sleep 0.1
        if is_settled; then often=$((often + 1)); else often=0; fi
        [ $often = 6 ] && return
    done
    echo "$name: not settled: $(cat $sys/sync_action), degraded $(cat $sys/degraded), $(cat $sys/sync_completed)"
}
# sweep ACTION: goes through all rows
sweep() {
    echo $1 >$sys/sync_action
    for turn in $(seq 600); do
        sleep 0.1
        [ $turn -gt 4 ] && [ "$(cat $sys/sync_action)" = idle ] && return
    done
    echo "$name: never through with $1"
}
recovered() { cut -d ' ' -f 1 <$sys/sync_completed; }
until_recovering() {
    for turn in $(seq 100); do
        recovered | grep -q '^[1-9]' && return
        sleep 0.1
    done
    echo "$name: never recovering: $(cat $sys/sync_action), degraded $(cat $sys/degraded)"
}
state_of() { cat $sys/dev-$(basename $(readlink -f /disk/$name-$1))/state 2>/dev/null; }

# read_to PLACE
read_to() { dd if=$md of=$(readlink -f /disk/$name-out) bs=64k seek=$(($1 * room)) oflag=seek_bytes conv=notrunc 2>/dev/null; }

# All that has a slot, or waits for one.
live() {
    for dev in $sys/dev-*; do
        grep -q -E 'in_sync|spare' $dev/state && echo /dev/${dev##*/dev-}
    done
}

# Without options, else by force, else although the kernel calls it dirty and degraded. Whether it is started.
start_somehow() {
    start && by=itself && return
    refused=kernel
    grep -q -e 'consider --force' /run/said && refused=mdadm
    echo "fact $name refused-by $refused"
    start --force && by=force && return
    echo 1 >/sys/module/md_mod/parameters/start_dirty_degraded
    start --force && by=parameter
    echo 0 >/sys/module/md_mod/parameters/start_dirty_degraded
    [ -n "$by" ] || cat /run/said
    [ -n "$by" ]
}

work() {
    by=
    start_somehow || return
    echo "fact $name started-by $by"
    echo "fact $name size $(blockdev --getsize64 $md)"
    if [ $end = clean ]; then
        until_recovering
        echo "fact $name from $(recovered)"
    fi
    read_to 0
    echo 200000 >$sys/sync_speed_max
    echo 200000 >$sys/sync_speed_min
    until_settled
    echo "fact $name degraded $(cat $sys/degraded)"
    echo "fact $name new $(state_of $new | grep -o -E 'in_sync|spare|faulty')"
    sweep check
    echo "fact $name mismatches $(cat $sys/mismatch_cnt)"
    if [ "$(cat $sys/mismatch_cnt)" != 0 ]; then
        sweep repair
        sweep check
        echo "fact $name mismatches-repaired $(cat $sys/mismatch_cnt)"
    fi
    read_to 1
    live=$(live)
    mdadm --quiet --stop $md
    place=2
    for lost in $(echo $others | tr , ' '); do
        away=$(readlink -f /disk/$name-$lost)
        mdadm --quiet --assemble --readonly --run $md $(echo "$live" | grep -v "^$away$") || return
        echo "fact $name without-$lost $(cat $sys/degraded)"
        read_to $place
        place=$((place + 1))
        mdadm --quiet --stop $md
    done
}

room=$1
shift
# The slowest: where the kernel goes on is seen before it has come far, and what it reads before a member holds everything.
limits 1 1
for spec; do
    IFS=: read -r name slot new given others end <<END
$spec
END
    work
    sync
done
