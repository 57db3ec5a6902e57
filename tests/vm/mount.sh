# The guest's half of `vm matrix --mount`: uraid serves block devices to this kernel's own NBD driver or loop device. $1: the
# option of `uraid mount`. Tells its results as lines `fact mount KEY VALUE`; all other lines are for a person.

fact() { echo "fact mount $1 $2"; }
option=$1
insmod /lab/modules/nbd.ko nbds_max=4 max_part=8
insmod /lab/modules/loop.ko
mkdir /mnt /again
members="/disk/m0 /disk/m1 /disk/m2"

# Serves in the background, until the array is ready.
serve() {
    : >/run/said
    uraid serve "$@" >>/run/said 2>&1 &
    for turn in $(seq 200); do
        grep -q nbd+unix /run/said && return
        sleep 0.1
    done
    cat /run/said
}
# The array as /dev/nbd0, by hand.
attach() {
    serve $members
    nbd-client -unix /run/uraid/home.nbd /dev/nbd0 -name home
}
detach() {
    nbd-client -d /dev/nbd0
    while [ -e /sys/block/nbd0/pid ]; do sleep 0.1; done
    uraid stop home || cat /run/said
    wait
}
sum_of() { sha256sum <"$1" | cut -c-64; }
same() { [ "$1" = "$2" ] && echo the-same || echo "$1-not-$2"; }

uraid create --level 5 --raid-devices 3 --chunk 64K --name home --homehost none --assume-clean $members || exit
attach
mkfs.ext4 -q /dev/nbd0
detach

said=$(uraid mount $option $members /mnt 2>&1) || { echo "$said"; exit; }
echo "$said"
device=$(grep ' /mnt ext4 ' /proc/mounts | cut -d' ' -f1 | tr -dc a-z)
fact device "${device#dev}"
long=none
[ "$(cat /sys/block/nbd0/queue/max_sectors_kb)" -ge 4096 ] && long=allowed
[ "${device#dev}" = loop ] && long=not-asked
fact long-requests $long
dd if=/dev/urandom of=/mnt/file bs=64k count=200 2>/dev/null
sum=$(sum_of /mnt/file)
(cd /mnt && uraid umount /mnt) && fact busy unmounted || fact busy refused
uraid mount $option home /again && fact twice mounted || fact twice refused
uraid umount /mnt || exit
left=$(cat /sys/block/nbd*/pid /sys/block/loop*/loop/backing_file 2>/dev/null; ls -d /run/uraid/* 2>/dev/null)
fact left "${left:-nothing}"

# The real md driver.
devices=$(for member in $members; do readlink -f $member; done)
# The kernel may keep a device for a moment after uraid has ended.
for turn in $(seq 50); do
    mdadm --assemble --run /dev/md0 $devices && break
    sleep 0.2
done
[ -e /sys/block/md0/md/sync_action ] || exit
e2fsck -fn /dev/md0 >/run/e2fsck 2>&1
fact e2fsck $?
echo check >/sys/block/md0/md/sync_action
while [ "$(cat /sys/block/md0/md/sync_action)" != idle ]; do sleep 0.1; done
fact mismatches "$(cat /sys/block/md0/md/mismatch_cnt)"
/usr/bin/mount -o ro /dev/md0 /mnt
fact kernel-reads "$(same "$(sum_of /mnt/file)" "$sum")"
/usr/bin/umount /mnt
mdadm --quiet --stop /dev/md0

# Degraded; then its server is killed.
uraid mount $option --run /disk/m0 /disk/m2 /mnt
fact degraded-reads "$(same "$(sum_of /mnt/file)" "$sum")"
kill -9 "$(uraid detail --json home | sed 's/.*"pid":\([0-9]*\).*/\1/')"
sleep 1
uraid umount /mnt
left=$(cat /sys/block/nbd*/pid /sys/block/loop*/loop/backing_file 2>/dev/null; grep ' /mnt ' /proc/mounts; ls -d /run/uraid/mount-* 2>/dev/null)
fact killed "${left:-undone}"

# A partition of 64 MiB at 1 MiB, on the same array, whole again.
uraid zero-superblock /disk/m1
serve --run /disk/m0 /disk/m2
uraid add home /disk/m1
uraid wait home
uraid stop home
wait
attach
{
    head -c 446 /dev/zero
    printf '\000\000\000\000\203\000\000\000\000\010\000\000\000\000\002\000'
    head -c 48 /dev/zero
    printf '\125\252'
} | dd of=/dev/nbd0 bs=512 2>/dev/null
detach
attach
head -c 512 /dev/nbd0 >/dev/null
mkfs.ext4 -q /dev/nbd0p1
detach
uraid mount $option --partition 1 $members /mnt || exit
echo words >/mnt/words
uraid umount /mnt
uraid mount $option --partition 1 --read-only $members /mnt
[ "$(cat /mnt/words)" = words ] && fact partition mounted
uraid umount /mnt
