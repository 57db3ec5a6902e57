#!/bin/busybox sh
# The guest's first process. Loads the modules in the order that the host worked out, links every disk to
# /disk/NAME (its virtio serial is its file name on the host), runs the script, tells its exit status, powers off.
/bin/busybox mkdir -p /bin /sbin /usr/bin /usr/sbin
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmpfs /run
while read -r module; do insmod "/lab/modules/$module"; done </lab/order
# The last line of a file without a newline at its end is in $module, unread by the loop.
[ -z "$module" ] || insmod "/lab/modules/$module"
for disk in /sys/block/vd*; do
    [ -e "$disk" ] && ln -s "/dev/${disk##*/}" "/disk/$(cat "$disk/serial")"
done
for port in /sys/class/virtio-ports/*; do
    case $(cat "$port/name") in
    lab.out) out=/dev/${port##*/} ;;
    lab.status) status=/dev/${port##*/} ;;
    esac
done
# mdadm would wait for a udev that is not here.
export MDADM_NO_UDEV=1
cd /root
sh /lab/run >"$out" 2>&1 </dev/null
echo $? >"$status"
# A script that leaves arrays as a power cut would: a shutdown in good order would mark them clean.
if [ -e /run/power-cut ]; then
    sleep 1
    echo b >/proc/sysrq-trigger
fi
poweroff -f
