# Opening of the golden files' guest script; the recipes follow it, then `tell` for every array.
# A recipe finds its members in $a $b $c .., all of them in $all, its array in $md and the array's sysfs folder in $sys.

# begin NAME COUNT: the next array and its members /disk/g-NAME-0..
begin() {
    name=$1 number=$((${number:--1} + 1)) all= slot=0
    for letter in a b c d e f; do
        eval "$letter="
        [ $slot -lt $2 ] || continue
        eval "$letter=$(readlink -f /disk/g-$1-$slot)"
        all="$all $(readlink -f /disk/g-$1-$slot)"
        slot=$((slot + 1))
    done
    md=/dev/md$number sys=/sys/block/md$number/md
}

# until_synced: waits until resync, recovery or reshape is done
until_synced() {
    for turn in $(seq 300); do
        [ "$(cat $sys/sync_action)" = idle ] && return
        sleep 0.1
    done
    echo "$name: $(cat $sys/sync_action) for ever"
}

# until_at SECTORS: waits until the work that sync_max holds back is there
until_at() {
    for turn in $(seq 100); do
        [ "$(cut -d ' ' -f 1 $sys/sync_completed)" = $1 ] && break
        sleep 0.1
    done
    [ $turn -lt 100 ] || echo "$name: $(cat $sys/sync_action) stands at $(cat $sys/sync_completed), not at $1"
}

# stays_dirty: no safe mode, so that the first write leaves the array dirty for good
stays_dirty() { echo 1000 >$sys/safe_mode_delay; }

# write SECTOR COUNT: zeroes, past the cache
write() { dd if=/dev/zero of=$md bs=4096 seek=$(($1 / 8)) count=$(($2 / 8)) oflag=direct 2>/dev/null; }

lines() { sed "s|^|text $1 $2 $3 |"; }

# tell NAME COUNT: what mdadm says of every member
tell() {
    for slot in $(seq 0 $(($2 - 1))); do
        disk=$(readlink -f /disk/g-$1-$slot)
        mdadm --examine $disk 2>&1 | lines $1 $slot examine
        mdadm --examine --brief $disk 2>&1 | lines $1 $slot brief
        mdadm --examine --export $disk 2>&1 | lines $1 $slot export
        mdadm --examine-badblocks $disk 2>&1 | lines $1 $slot badblocks
        mdadm --examine-bitmap $disk 2>&1 | lines $1 $slot bitmap
    done
}
echo "fact kernel $(uname -r)"
