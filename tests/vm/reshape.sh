# The guest's half of the arrays whose reshape stopped half-way. Each argument is
# NAME:LEVEL:LAYOUT:MEMBERS:SPARES:END:GROW; the members of NAME are /disk/NAME-0.., its spares behind them. GROW is what
# `mdadm --grow` takes, with `,` for a space.
# Tells its results as lines `fact NAME KEY VALUE`; all other lines are for a person.

disks() {
    at=$2
    while [ $at -lt $3 ]; do
        readlink -f /disk/$1-$at
        at=$((at + 1))
    done
}

sha() { head -c $size <$md | sha256sum | cut -d ' ' -f 1; }

position() {
    found=$(cat $sys/reshape_position)
    [ "$found" = none ] && found=0
    echo $found
}

# Forwards it begins at 0, backwards at the end.
is_half_way() {
    found=$(position)
    [ $found -gt $((size / 512 / 5)) ] && [ $found -lt $((size / 512 * 4 / 5)) ]
}

begin() {
    options="--level=$level --raid-devices=$count --metadata=1.2 --data-offset=2M --size=16384"
    [ -z "$layout" ] || options="$options --layout=$layout"
    mdadm --quiet --create $md --run --assume-clean --chunk=64 $options $(disks $name 0 $count) || return
    size=$(blockdev --getsize64 $md)
    case $grow in
    *--array-size=*)
        mdadm --quiet --grow $md $(echo $grow | cut -d , -f 1) || return
        grow=$(echo $grow | cut -d , -f 2-)
        size=$(blockdev --getsize64 $md)
        ;;
    esac
    head -c $size /dev/urandom | dd of=$md bs=64k 2>/dev/null
    sync
    [ $spares = 0 ] || mdadm --quiet $md --add $(disks $name $count $((count + spares))) || return
    echo 1 >$sys/sync_speed_min
    echo 1000 >$sys/sync_speed_max
    mdadm --grow $md $(echo $grow | tr , ' ') || return
    for turn in $(seq 600); do
        is_half_way && break
        sleep 0.1
    done
    echo 1 >$sys/sync_speed_max
    # It goes on slowly meanwhile: requests at the position of a reshape that is frozen wait for it.
    # Writes on both sides of the position and around it, as an array at work has them.
    at=$(($(position) / 2 / 64))
    for block in 1 3 $((at - 2)) $((at - 1)) $at $((at + 1)) $((at + 2)) $((at + 20)); do
        head -c 65536 /dev/urandom | dd of=$md bs=64k seek=$block 2>/dev/null || echo "$name: write failed"
    done
    sync
    echo 3 >/proc/sys/vm/drop_caches
    echo "fact $name read $(sha)"
    echo "fact $name position $(is_half_way && echo inside)"
    if [ $end = cut ]; then
        touch /run/power-cut
    else
        mdadm --quiet --stop $md
    fi
}

number=0
for spec; do
    IFS=: read -r name level layout count spares end grow <<END
$spec
END
    md=/dev/md$number
    sys=/sys/block/md$number/md
    number=$((number + 1))
    begin
done
sync
