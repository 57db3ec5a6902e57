# The guest's half of the arrays whose members have lists of bad blocks from both sides. The first argument is the task:
# `begin` makes the arrays and lists sectors of member 1, `finish` gets them from uraid. Each other one is
# NAME:LEVEL:LAYOUT:MEMBERS:METADATA; the members of NAME are /disk/NAME-0...
# Tells its results as lines `fact NAME KEY VALUE`; all other lines are for a person.

disks() {
    at=0
    while [ $at -lt $count ]; do
        readlink -f /disk/$name-$at
        at=$((at + 1))
    done
}

# The first and the last 8 MiB, as the host compares them.
content() {
    kib=$(($(blockdev --getsize64 $md) / 1024))
    if [ $kib -le 16384 ]; then
        dd if=$md bs=1k 2>/dev/null
    else
        dd if=$md bs=1k count=8192 2>/dev/null
        dd if=$md bs=1k skip=$((kib - 8192)) 2>/dev/null
    fi
}
sha() { content | sha256sum | cut -d ' ' -f 1; }
until_idle() {
    for turn in $(seq 600); do
        [ "$(cat $sys/sync_action)" = idle ] && return
        sleep 0.1
    done
    echo "$name: never idle: $(cat $sys/sync_action)"
}
# The device of member AT in the kernel's words.
device() { basename $(readlink -f /disk/$name-$1); }
# START+LENGTH,... in sectors of the device.
listed() {
    list=$(tr ' ' '+' <$sys/dev-$(device $1)/bad_blocks | tr '\n' ',')
    echo "${list%,}"
}

begin() {
    options="--level=$level --raid-devices=$count --metadata=$metadata --bitmap=none"
    [ -z "$layout" ] || options="$options --layout=$layout"
    [ $level = 1 ] || options="$options --chunk=64"
    mdadm --quiet --create $md --run --assume-clean $options $(disks) || return
    head -c $(blockdev --getsize64 $md) /dev/urandom | dd of=$md bs=64k 2>/dev/null
    sync
    # A read of listed sectors makes raid4, 5 and 6 write them, and forget them.
    echo "fact $name wrote $(sha)"
    dd if=$md of=/run/block bs=4096 count=1 skip=64 2>/dev/null
    offset=$(cat $sys/dev-$(device 1)/offset)
    for range in "8 16" "1200 100"; do
        set -- $range
        echo "$((offset + $1)) $2" >$sys/dev-$(device 1)/bad_blocks
    done
    echo "fact $name listed $(listed 1)"
    # The superblocks of the next write show the list.
    dd if=/run/block of=$md bs=4096 seek=64 conv=notrunc,fsync 2>/dev/null
    mdadm --quiet --stop $md
    # Whoever reads these sectors is noticed.
    for range in "8 16" "1200 100"; do
        set -- $range
        head -c $(($2 * 512)) /dev/urandom | dd of=$(readlink -f /disk/$name-1) bs=512 seek=$((offset + $1)) conv=notrunc 2>/dev/null
    done
    sync
}

finish() {
    mdadm --quiet --assemble $md $(disks) || return
    echo "fact $name ours $(listed 0)"
    echo "fact $name left $(listed 1)"
    echo "fact $name read $(sha)"
    echo check >$sys/sync_action
    until_idle
    echo "fact $name mismatches $(cat $sys/mismatch_cnt)"
    echo "fact $name degraded $(cat $sys/degraded)"
    mdadm --quiet --stop $md
}

task=$1
shift
number=0
for spec; do
    IFS=: read -r name level layout count metadata <<END
$spec
END
    md=/dev/md$number
    sys=/sys/block/md$number/md
    $task
done
sync
