# The guest's half of the arrays with a write-intent bitmap that one side leaves dirty, or with a member away, and the other
# side makes right. The first argument is the task: `begin` makes the arrays, `finish` gets them from uraid. Each other one is
# NAME:LEVEL:LAYOUT:MEMBERS:METADATA:HOW:MAKER; the members of NAME are /disk/NAME-0... HOW says who does what:
#   cut      the kernel writes and loses its power; uraid resyncs, removes the bitmap and adds one while it serves, writes
#            and is killed; the kernel resyncs
#   ours     uraid does the same with the bitmap, fails member 1, writes and stops; the kernel re-adds it
#   theirs   the kernel fails and removes member 1, writes and stops; uraid re-adds it
# An array whose MAKER is not `kernel` is there already.
# Tells its results as lines `fact NAME KEY VALUE`; all other lines are for a person.

disks() {
    at=0
    while [ $at -lt $count ]; do
        [ "$at" = "$1" ] || readlink -f /disk/$name-$at
        at=$((at + 1))
    done
}

# The first and the last 8 MiB: the guest is slow, and the rest is zeroes.
content() {
    kib=$(($(blockdev --getsize64 $md) / 1024))
    dd if=$md bs=1k count=8192 2>/dev/null
    dd if=$md bs=1k skip=$((kib - 8192)) 2>/dev/null
}
sha() { content | sha256sum | cut -d ' ' -f 1; }
fill() {
    kib=$(($(blockdev --getsize64 $md) / 1024))
    head -c 8388608 /dev/urandom | dd of=$md bs=64k 2>/dev/null
    head -c 8388608 /dev/urandom | dd of=$md bs=1k seek=$((kib - 8192)) 2>/dev/null
    sync
}
# Four dirty chunks at most.
write_some() {
    for kib in 64 3077 6144; do
        head -c 4096 /dev/urandom | dd of=$md bs=4096 count=1 oflag=seek_bytes,direct seek=$((kib * 1024)) conv=notrunc 2>/dev/null ||
            head -c 4096 /dev/urandom | dd of=$md bs=1k seek=$kib conv=notrunc,fsync 2>/dev/null
    done
    sync
}
# traffic MEMBER: sectors read and written since the guest's boot
traffic() {
    set -- $(cat /sys/block/$(basename $(readlink -f /disk/$name-$1))/stat)
    echo $(($3 + $7))
}
until_whole() {
    for turn in $(seq 600); do
        [ "$(cat $sys/sync_action)" = idle ] && [ "$(cat $sys/degraded)" = 0 ] && return
        sleep 0.1
    done
    echo "$name: never whole: $(cat $sys/sync_action), degraded $(cat $sys/degraded)"
}

begin() {
    bitmap="--bitmap=internal --bitmap-chunk=64K"
    options="--level=$level --raid-devices=$count --metadata=$metadata"
    # The kernel gives the bitmap to an array that runs, except where it is to re-add a member.
    [ $how != theirs ] || options="$options $bitmap"
    [ $how = theirs ] || options="$options --bitmap=none"
    [ -z "$layout" ] || options="$options --layout=$layout"
    [ $level = 1 ] || options="$options --chunk=64"
    if [ $maker = kernel ]; then
        mdadm --quiet --create $md --run --assume-clean $options $(disks) || return
    else
        mdadm --quiet --assemble $md $(disks) || return
    fi
    fill
    [ $maker != kernel ] || [ $how = theirs ] || mdadm --grow $md $bitmap || echo "fact $name wrote no-bitmap"
    # A stop clears the bits.
    mdadm --quiet --stop $md
    if [ $how != ours ]; then
        mdadm --quiet --assemble $md $(disks) || return
        if [ $how = theirs ]; then
            mdadm --quiet $md --fail $(readlink -f /disk/$name-1)
            mdadm --quiet $md --remove $(readlink -f /disk/$name-1)
        fi
        write_some
    else
        mdadm --quiet --assemble --readonly $md $(disks) || return
    fi
    echo "fact $name wrote $(sha)"
    if [ $how = cut ]; then
        touch /run/power-cut
    else
        mdadm --quiet --stop $md
    fi
}

finish() {
    before=$(traffic 1)
    away=
    [ $how = ours ] && away=1
    mdadm --quiet --assemble --run $md $(disks $away) || return
    [ $how = ours ] && { mdadm $md --re-add $(readlink -f /disk/$name-1) || echo "fact $name re-add refused"; }
    # A resync or recovery begins a moment later.
    sleep 0.5
    until_whole
    echo "fact $name degraded $(cat $sys/degraded)"
    moved=$(($(traffic 1) - before))
    echo "$name: $moved sectors of member 1"
    [ $moved -lt 8192 ] && moved=little
    echo "fact $name moved $moved"
    echo check >$sys/sync_action
    until_whole
    echo "fact $name mismatches $(cat $sys/mismatch_cnt)"
    echo "fact $name read $(sha)"
    mdadm --quiet --stop $md
    # What came back stands in for slot 0.
    mdadm --quiet --assemble --readonly --run $md $(disks 0) || return
    echo "fact $name without $(sha)"
    mdadm --quiet --stop $md
}

task=$1
shift
number=0
for spec; do
    IFS=: read -r name level layout count metadata how maker <<END
$spec
END
    md=/dev/md$number
    sys=/sys/block/md$number/md
    # An array that is to be cut off keeps its device.
    number=$((number + 1))
    $task
done
sync
