# The guest's half of the matrix. Each argument is NAME:LEVEL:LAYOUT:MEMBERS:TOLERATES:METADATA; the members of NAME
# are /disk/u-NAME-0.. (made by uraid) and /disk/k-NAME-0.. (empty: the kernel makes its own array there).
# Tells its results as lines `fact NAME KEY VALUE`; all other lines are for a person.
md=/dev/md0
sys=/sys/block/md0/md

# members MAKER NAME COUNT [LOST...]: the paths of all but the lost ones
members() {
    maker=$1 array=$2 count=$3
    shift 3
    slot=0
    while [ $slot -lt $count ]; do
        case " $* " in
        *" $slot "*) ;;
        *) readlink -f /disk/$maker-$array-$slot ;;
        esac
        slot=$((slot + 1))
    done
}

sha() { sha256sum <$md | cut -d ' ' -f 1; }

stop() { mdadm --quiet --stop $md; }

ours() {
    mdadm --quiet --assemble $md $(members u $1 $4) || return
    if [ -e $sys/sync_action ]; then
        echo "fact $1 ours-action $(cat $sys/sync_action)"
        echo check >$sys/sync_action
        while [ "$(cat $sys/sync_action)" != idle ]; do sleep 0.1; done
        echo "fact $1 ours-mismatches $(cat $sys/mismatch_cnt)"
    fi
    echo "fact $1 ours-sha $(sha)"
    stop
    [ $5 = 0 ] && return
    a=0
    while [ $a -lt $4 ]; do
        without $1 $4 $a
        b=$((a + 1))
        while [ $5 != 1 ] && [ $b -lt $4 ]; do
            without $1 $4 $a $b
            b=$((b + 1))
        done
        a=$((a + 1))
    done
}

# without NAME COUNT LOST...: read-only, so that the members that stay learn nothing of it
without() {
    name=$1 all=$2
    shift 2
    mdadm --quiet --assemble --readonly --run $md $(members u $name $all "$@") || return
    echo "fact $name ours-without-$(echo "$*" | tr ' ' -) $(sha)"
    stop
}

theirs() {
    options="--level=$2 --raid-devices=$4 --metadata=$6"
    [ -z "$3" ] || options="$options --layout=$3"
    [ "$6" = 0.90 ] || options="$options --name=$1"
    case $2 in
    linear) ;;
    1) options="$options --assume-clean" ;;
    *) options="$options --assume-clean --chunk=64" ;;
    esac
    # The members are empty, so their parity is right as it is.
    mdadm --quiet --create $md --run $options $(members k $1 $4) || return
    bytes=$(blockdev --getsize64 $md)
    head -c $bytes /dev/urandom | dd of=$md bs=1M 2>/dev/null
    sync
    echo 3 >/proc/sys/vm/drop_caches
    echo "fact $1 theirs-sha $(sha)"
    stop
}

echo "fact guest kernel $(uname -r)"
for spec; do
    IFS=: read -r name level layout count tolerates metadata <<END
$spec
END
    start=$(cut -d ' ' -f 1 /proc/uptime)
    [ -e /disk/k-$name-0 ] && theirs $name $level "$layout" $count $tolerates $metadata
    [ -e /disk/u-$name-0 ] && ours $name $level "$layout" $count $tolerates
    echo "$name: from $start to $(cut -d ' ' -f 1 /proc/uptime) s after boot"
done
sync
