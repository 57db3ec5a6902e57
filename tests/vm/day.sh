# The guest's half of a day in the life of an array: the kernel gets what is left of its members, m0 to m5 and spare. Tells
# its results as lines `fact day KEY VALUE`; all other lines are for a person.

md=/dev/md0
sys=/sys/block/md0/md
until_idle() {
    for turn in $(seq 300); do
        [ "$(cat $sys/sync_action)" = idle ] && return
        sleep 0.1
    done
    echo "$(cat $sys/sync_action) for ever, $(cat $sys/sync_completed)"
}

disks=
for name in m0 m1 m2 m3 m4 m5 spare; do
    disks="$disks $(readlink -f /disk/$name)"
done
mdadm --assemble --run $md $disks 2>&1
[ -e $sys/degraded ] || exit
echo "fact day began $(cat $sys/sync_action)"
# A resync begins a moment after the start.
sleep 0.3
until_idle
echo "fact day degraded $(cat $sys/degraded)"
bitmap=none
[ "$(cat $sys/bitmap/location)" = none ] || bitmap=internal
echo "fact day bitmap $bitmap"
echo check >$sys/sync_action
until_idle
echo "fact day mismatches $(cat $sys/mismatch_cnt)"
mdadm --quiet --stop $md
