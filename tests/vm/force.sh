# The guest's half of the arrays that uraid left behind with a failed member, killed. Each argument is NAME:MEMBERS; the
# members of NAME are /disk/NAME-0.., its whole content goes to /disk/NAME-out.
# Tells its results as lines `fact NAME KEY VALUE`; all other lines are for a person.
md=/dev/md0
sys=/sys/block/md0/md

disks() {
    slot=0
    while [ $slot -lt $2 ]; do
        readlink -f /disk/$1-$slot
        slot=$((slot + 1))
    done
}

for spec; do
    IFS=: read -r name count <<END
$spec
END
    mdadm --assemble --force --run $md $(disks $name $count) 2>&1
    [ -e $sys/degraded ] || continue
    echo "fact $name degraded $(cat $sys/degraded)"
    dd if=$md of=$(readlink -f /disk/$name-out) bs=64k 2>/dev/null
    mdadm --quiet --stop $md
done
sync
