#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_info
short_description: Read the facts about a node that a cluster depends on
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Reads the facts that a cluster depends on from the node, in one call. They are memory, kernel and its log, GPUs, Docker engine and containers,
    network, RDMA devices and fabric, listeners, disk space, variables set for all users, limits, other users of the GPU, models on disk, and
    the memory of earlier starts.
  - Each section can fail independently. RV(errors) lists what could not be read, and the section is then null or empty, in whole or in part. A list that
    is empty for this reason must not be read as "none exist".
  - It also runs unprivileged, and reports what it could not read. Use C(become) to read everything.
  - It only reads, and needs only Python's standard library. Neither iproute2 nor the Docker SDK has to be installed.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._docker
  - gb10.cluster._look
  - gb10.cluster._look.driver
attributes:
  action:
    description: Runs partly on the controller, for O(reach).
    support: full
options:
  sections:
    description:
      - Sections to read, by the names of the results. If empty, everything but RV(texts).
      - A section that was not requested is not in the result.
    type: list
    elements: str
    choices:
      - memory
      - kernel
      - docker
      - containers
      - foreign_containers
      - images
      - firewall
      - interfaces
      - fabric
      - rdma
      - devices
      - listeners
      - disk
      - gpus
      - environment
      - netplan
      - limits
      - kernel_log
      - tenants
      - models
      - zombies
      - starts
      - held
      - ladder
      - companions
      - mode
      - texts
    default: []
    version_added: 0.2.0
  companions:
    description:
      - For RV(companions), the services that are declared on this node, in the format of the setting C(gb10_companions).
    type: list
    elements: dict
    default: []
    version_added: 0.2.0
  await_up:
    description:
      - Names of companions that were started. The module waits for each until it answers or ends.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  await_down:
    description:
      - Names of companions that were asked to end. The module waits for each until it has ended.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  await_timeout:
    description:
      - Maximum seconds to wait for O(await_up) and O(await_down). After that they are returned in their current state.
    type: int
    default: 0
    version_added: 0.2.0
  reach:
    description:
      - Return a node on which no module runs as a result with RV(reached) false and the reason, instead of an error.
    type: bool
    default: false
    version_added: 0.2.0
  devices:
    description:
      - Device nodes, or directories of them, to search.
    type: list
    elements: path
    default: [/dev/infiniband]
  ports:
    description:
      - TCP ports whose listeners are returned.
    type: list
    elements: int
    default: []
  paths:
    description:
      - Paths whose free disk space is returned. For one that does not exist yet, its nearest existing parent is used.
    type: list
    elements: path
    default: []
  images:
    description:
      - Images to search for on the node.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  nft:
    description:
      - The tool that shows the firewall's rules, as a path or a name on C(PATH). A node without it counts as having no firewall.
    type: str
    default: nft
    version_added: 0.2.0
  model_roots:
    description:
      - Hugging Face hub caches to search for models. Each is the directory that contains C(hub/), or C(hub/) itself. One that does not exist counts as empty.
      - An absolute path may have C(*), C(?) and C([...]) in its parts, as in C(/home/*/.cache/huggingface), and then means all matches.
    type: list
    elements: path
    default: []
    version_added: 0.2.0
  pid_namespace:
    description:
      - For RV(zombies), where the driver's pids are counted. V(auto) recognizes the machine's own pid namespace, V(host) asserts it.
    type: str
    choices: [auto, host]
    default: auto
    version_added: 0.2.0
  state_dir:
    description:
      - For RV(zombies), RV(starts) and RV(ladder), the directory with the state of this collection's clusters on the node, and its memory
        baseline.
    type: path
    default: /var/lib/gb10
    version_added: 0.2.0
"""

EXAMPLES = r"""
- name: Read the nodes
  gb10.cluster.node_info:
    ports: [6379, 8000]
    paths: [/var/lib/gb10, /home/spark/.cache/huggingface]
  register: node

- name: Read only other users of the GPU and the models on disk
  gb10.cluster.node_info:
    sections: [gpus, tenants, foreign_containers, models]
    model_roots: [/home/spark/.cache/huggingface]
  become: true
  register: others

- name: Show what could not be read
  ansible.builtin.debug:
    var: node.errors
"""

RETURN = r"""
reached:
  description: Whether a module runs on the node. If not, RV(ignore:msg), RV(ignore:reason) and RV(ignore:remedy) are as in M(gb10.cluster.node_state_info).
  returned: with O(reach=true)
  type: bool
  version_added: 0.2.0
  sample: true
memory:
  description:
    - Memory in MiB, null if it could not be read. A figure that this kernel does not have is 0.
    - CPU and GPU of a GB10 share it. CUDA's memory shows in none of the kernel's figures but RV(memory.available_mb).
  returned: when asked for
  type: dict
  contains:
    total_mb:
      description: All memory of the kernel.
      type: int
      sample: 122536
    free_mb:
      description: Unused memory.
      type: int
      sample: 9120
    available_mb:
      description: Memory that is available without swapping.
      type: int
      sample: 108870
    cached_mb:
      description: The page cache, shared memory included.
      type: int
      sample: 97204
    buffers_mb:
      description: Cached blocks of file systems.
      type: int
      sample: 412
    slab_reclaimable_mb:
      description: Kernel memory that can be reclaimed.
      type: int
      sample: 1290
    dirty_mb:
      description: Pages that wait to be written to disk.
      type: int
      sample: 3
    writeback_mb:
      description: Pages that are being written to disk.
      type: int
      sample: 0
    mapped_mb:
      description: Pages of files that processes have mapped.
      type: int
      sample: 611
    shmem_mb:
      description: Shared memory and files in memory.
      type: int
      sample: 44
    swap_total_mb:
      description: Swap space.
      type: int
      sample: 0
    swap_free_mb:
      description: Swap space that is not used.
      type: int
      sample: 0
    anon_mb:
      description: Memory of processes without a file behind it.
      type: int
      version_added: 0.2.0
      sample: 2210
    sunreclaim_mb:
      description: Kernel memory that cannot be reclaimed.
      type: int
      version_added: 0.2.0
      sample: 388
    kernel_stack_mb:
      description: Stacks of threads.
      type: int
      version_added: 0.2.0
      sample: 18
    page_tables_mb:
      description: Tables that map memory.
      type: int
      version_added: 0.2.0
      sample: 29
    hugetlb_mb:
      description: Reserved huge pages.
      type: int
      version_added: 0.2.0
      sample: 0
    committed_as_mb:
      description: Memory promised to all processes.
      type: int
      version_added: 0.2.0
      sample: 9411
    cma_total_mb:
      description: Contiguous memory that the kernel reserves for devices. Null if the kernel does not account for it.
      type: int
      version_added: 0.2.0
      sample: 128
    swap_in_pages:
      description: Pages read from swap since boot. Null if the kernel does not report it.
      type: int
      version_added: 0.2.0
      sample: 0
    swap_out_pages:
      description: Pages written to swap since boot. Null if the kernel does not report it.
      type: int
      version_added: 0.2.0
      sample: 0
    swappiness:
      description: The setting vm.swappiness, 0 to 200.
      type: int
      version_added: 0.2.0
      sample: 60
    pressure:
      description:
        - How long some or all tasks waited for memory, in percent of the last 10, 60 and 300 seconds and in microseconds since boot.
        - Null if the kernel does not measure it.
      type: dict
      version_added: 0.2.0
      sample: {"some": {"avg10": 0.0, "avg60": 0.0, "avg300": 0.0, "total_us": 4711}, "full": {"avg10": 0.0, "avg60": 0.0, "avg300": 0.0, "total_us": 4200}}
kernel:
  description: The running kernel. Null if not even its release could be read.
  returned: when asked for
  type: dict
  contains:
    release:
      description: Its release.
      type: str
      sample: 6.11.0-1016-nvidia
    arch:
      description: The architecture.
      type: str
      sample: aarch64
    boot_id:
      description: An id that changes at every boot.
      type: str
      sample: 2a5dc1f5-3983-4f96-a958-ebff58fa47ab
    cmdline:
      description: Its command line.
      type: str
      version_added: 0.2.0
      sample: "BOOT_IMAGE=/boot/vmlinuz-6.11.0-1016-nvidia root=UUID=4f1c ro quiet"
    uptime_s:
      description: Seconds since boot.
      type: float
      version_added: 0.2.0
      sample: 86412.7
    modules:
      description:
        - The modules that a node needs and that are loaded or installed.
        - Each has the C(loaded) version and the version C(installed) for this kernel, null if there is none.
        - A module without a version number has the checksum of its sources, or the kernel it was built for.
      type: dict
      version_added: 0.2.0
      sample: {"nvidia": {"loaded": 580.95.05, "installed": 580.95.05}, "mlx5_core": {"loaded": 6.11.0-1016-nvidia, "installed": 6.11.0-1016-nvidia}}
    next_boot:
      description: The kernel of the next boot, and whether it has NVIDIA's driver. Both are null if no kernel is below O(roots.boot_root).
      type: dict
      version_added: 0.2.0
      sample: {"release": 6.11.0-1016-nvidia, "has_nvidia_driver": true}
    nvidia_flavor:
      description: Which of NVIDIA's modules are loaded, V(open) or V(proprietary). Null without one.
      type: str
      version_added: 0.2.0
      sample: open
    nvidia_modprobe:
      description: The version of the package nvidia-modprobe. Null if it is not installed.
      type: str
      version_added: 0.2.0
      sample: 580.159.03-1ubuntu1
    machine:
      description: The machine's id, hashed. Sparks were reported to be shipped with equal ones. Null if it has none.
      type: str
      version_added: 0.2.0
      sample: 9b1c6f2d0a7e4c35
    parameters:
      description: Parameters of loaded modules as reported by the driver.
      type: dict
      version_added: 0.2.0
      sample: {"nvidia_drm.modeset": "Y"}
    clock:
      description:
        - The clock.
        - C(source) is the kernel's clock source, C(offset_ms) the remaining correction, positive if the clock is behind, and C(daemon) the program that
          keeps the time.
        - Comparing two nodes is up to the caller.
      type: dict
      version_added: 0.2.0
      sample: {"source": arch_sys_counter, "synchronized": true, "offset_ms": 0.021, "daemon": chrony}
docker:
  description:
    - The Docker engine. RV(docker.reachable) shows whether it answered. The engine's other keys are null if it did not.
    - RV(docker.python_docker) is the version of the Docker SDK that the node's Python would import, null if there is none.
  returned: when asked for
  type: dict
  contains:
    reachable:
      description: Whether the engine answered.
      type: bool
      sample: true
    version:
      description: Its version.
      type: str
      sample: 28.3.3
    api_version:
      description: The newest API that it supports.
      type: str
      sample: "1.51"
    min_api_version:
      description: The oldest API that it supports.
      type: str
      sample: "1.24"
    cgroup_driver:
      description: The driver for its control groups.
      type: str
      sample: systemd
    cgroup_version:
      description: The version of control groups.
      type: str
      sample: "2"
    runtimes:
      description: Its container runtimes.
      type: list
      elements: str
      sample: [nvidia, runc]
    storage_driver:
      description: Its storage driver.
      type: str
      sample: overlay2
    image_store:
      description: Its image store, V(classic) or V(containerd). An image has a different id in each.
      type: str
      version_added: 0.2.0
      sample: classic
    root_dir:
      description: Its directory for images and containers.
      type: str
      sample: /var/lib/docker
    root_free_bytes:
      description: The free disk space there. Null if unknown.
      type: int
      sample: 851479363584
    default_runtime:
      description: The runtime of a container that requests none.
      type: str
      version_added: 0.2.0
      sample: runc
    cdi_dirs:
      description: Its directories for device specifications (CDI). Empty if CDI is switched off or not supported.
      type: list
      elements: str
      version_added: 0.2.0
      sample: [/etc/cdi, /var/run/cdi]
    cdi_devices:
      description: The devices in those specifications.
      type: list
      elements: str
      version_added: 0.2.0
      sample: ["nvidia.com/gpu=0", "nvidia.com/gpu=all"]
    cdi_libcuda:
      description: The specifications that name the driver's C(libcuda) on the host, and its versions. Of two, the engine uses the later one.
      type: list
      elements: dict
      version_added: 0.2.0
      sample: [{"path": /etc/cdi/nvidia.yaml, "libcuda": [580.159.03]}]
    nvidia:
      description: How it can pass a GPU to a container. V(runtime) is NVIDIA's runtime, V(cdi) a specified device, V(both), V(hook) the
          hook of NVIDIA's toolkit, which supports only C(--gpus), or V(none).
      type: str
      version_added: 0.2.0
      sample: both
    snap:
      description: Whether it is the confined one from the snap package.
      type: bool
      version_added: 0.2.0
      sample: false
    memlock_bytes:
      description: How much memory its daemon may lock, -1 for no limit, null if that cannot be read or the daemon is not on this node.
      type: int
      version_added: 0.2.0
      sample: -1
    live_restore:
      description: Whether containers survive a restart of the daemon.
      type: bool
      version_added: 0.2.0
      sample: false
    warnings:
      description: Its warnings.
      type: list
      elements: str
      version_added: 0.2.0
      sample: []
    python_docker:
      description: The version of the Docker SDK for Python on this node.
      type: str
      sample: 5.0.3
containers:
  description: The collection's containers on the node, of any cluster.
  returned: when asked for
  type: list
  elements: dict
  contains:
    id:
      description: The container's id.
      type: str
      sample: 4b1d1b8e52b0f1c1
    name:
      description: Its name.
      type: str
      sample: gb10-gb10-head
    image:
      description: Its image.
      type: str
      sample: gb10/engine:ray
    cluster:
      description: Its cluster, from its label or else its name. Null if neither shows it.
      type: str
      sample: gb10
    role:
      description: Its role, from its label or else its name. Null if neither shows it.
      type: str
      sample: head
    spec:
      description: The digest of its requested options.
      type: str
      sample: "1:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    state:
      description: Its state.
      type: str
      sample: running
    status:
      description: The engine's description of its state.
      type: str
      sample: Up 3 hours
foreign_containers:
  description: The containers on the node that are not from this collection, by name, running or not.
  returned: when asked for
  type: list
  elements: dict
  version_added: 0.2.0
  contains:
    id:
      description: The container's id.
      type: str
      sample: 9f1d1b8e52b0f1c1
    name:
      description: Its name.
      type: str
      sample: open-webui
    image:
      description: Its image.
      type: str
      sample: "ghcr.io/open-webui/open-webui:ollama"
    state:
      description: Its state.
      type: str
      sample: running
    command:
      description: Its command, without secrets as far as they are recognized.
      type: str
      sample: bash start.sh
    created:
      description: When it was created, in UTC.
      type: str
      sample: "2026-11-02T08:11:40Z"
    gpu:
      description: Whether it has an NVIDIA GPU, by a request, a device file, or NVIDIA's runtime. Null if the engine did not report it.
      type: bool
      sample: true
    pids:
      description: Its pids on the node. Empty if it does not run.
      type: list
      elements: int
      sample: [40121, 40188]
    host_network:
      description: Whether it shares the node's network. Null if the engine did not report it.
      type: bool
      sample: false
    env_names:
      description: The names of its variables for the engine, Ray, NCCL, CUDA and related software. Null if the engine did not report them.
      type: list
      elements: str
      sample: [CUDA_VERSION, NVIDIA_VISIBLE_DEVICES]
    ports:
      description: The ports that it publishes.
      type: list
      elements: dict
      sample: [{"address": 0.0.0.0, "port": 3000, "container_port": 8080, "protocol": tcp}]
images:
  description: The engine's data about each of O(images), null for one that the node does not have.
  returned: always
  type: dict
  sample:
    "gb10/engine:ray":
      id: sha256:9b90461c92071f0c3f3d4b7f2c5fb0c5b7de7f2d4f7d8e9a0b1c2d3e4f506172
      architecture: arm64
      os: linux
      created: "2026-11-20T18:02:11Z"
      size_bytes: 18853210112
      repo_digests: []
      labels: {"io.gb10.base": "sha256:fc5d6037a455", "io.gb10.recipe": "1f0c3f3d"}
  version_added: 0.2.0
firewall:
  description:
    - Whether a firewall rejects incoming packets by default, and the interfaces and networks from which it accepts all. Null if
      unknown.
  returned: always
  type: dict
  sample: {"source": nft, "default_deny": true, "interfaces": [lo, enp1s0f0np0], "networks": [10.0.0.0/24]}
  version_added: 0.2.0
interfaces:
  description: The network interfaces by name.
  returned: when asked for
  type: list
  elements: dict
  contains:
    name:
      description: The interface.
      type: str
      sample: enp1s0f0np0
    carrier:
      description: Whether the other end is connected. Null while the interface is down.
      type: bool
      sample: true
    operstate:
      description: Its state.
      type: str
      sample: up
    mtu:
      description: The largest packet in bytes.
      type: int
      sample: 9000
    mac:
      description: Its hardware address.
      type: str
      sample: 4c:bb:47:2c:00:01
    speed:
      description: Its speed in Mbit/s. Null if not reported.
      type: int
      sample: 200000
    driver:
      description: Its driver. Null for a virtual interface.
      type: str
      sample: mlx5_core
    addresses:
      description: Its addresses, IPv4 and IPv6.
      type: list
      elements: str
      sample: [192.168.100.10, "fe80::4ebb:47ff:fe2c:1"]
    networks:
      description: The same addresses with their networks.
      type: list
      elements: dict
      sample: [{"family": ipv4, "address": 192.168.100.10, "prefix": 24, "network": 192.168.100.0/24, "scope": global}]
fabric:
  description:
    - One entry for each RDMA device, then one for each interface of the driver mlx5_core that has none.
    - Values that could not be read are null.
  returned: when asked for
  type: list
  elements: dict
  version_added: 0.2.0
  contains:
    device:
      description: The RDMA device. Null for an interface without one.
      type: str
      sample: rocep1s0f0
    netdev:
      description: Its interface.
      type: str
      sample: enp1s0f0np0
    twin:
      description: The interface that is the other PCIe half of the same cage. Null if there is not exactly one.
      type: str
      sample: enP2p1s0f0np0
    cage:
      description: The cage, by the name of its port.
      type: str
      sample: p0
    bond:
      description: The bond that the interface belongs to. Null if there is none.
      type: str
    carrier:
      description: Whether the other end is connected. Null while the interface is down.
      type: bool
      sample: true
    operstate:
      description: The state of the interface.
      type: str
      sample: up
    speed_mbps:
      description: Its speed in Mbit/s. Null if not reported.
      type: int
      sample: 200000
    mtu:
      description: Its largest packet in bytes.
      type: int
      sample: 9000
    addresses:
      description: Its own addresses, without those of a bond.
      type: list
      elements: str
      sample: [192.168.100.10]
    networks:
      description: The same addresses with their networks.
      type: list
      elements: dict
      sample: [{"family": ipv4, "address": 192.168.100.10, "prefix": 24, "network": 192.168.100.0/24, "scope": global}]
    driver:
      description: Its driver.
      type: str
      sample: mlx5_core
    firmware:
      description: The firmware of the RDMA device.
      type: str
      sample: 28.45.4028
    port_state:
      description: The state of its port.
      type: str
      sample: ACTIVE
    physical_state:
      description: The physical state of its port.
      type: str
      sample: LinkUp
    rate:
      description: The rate of its port in the kernel's words.
      type: str
      sample: 200 Gb/sec (4X HDR)
    pcie:
      description: Its PCIe link, with current and maximum lanes and GT/s per lane.
      type: dict
      sample: {"address": "0000:01:00.0", "width": 4, "width_max": 4, "speed_gts": 32.0, "speed_max_gts": 32.0}
    gids:
      description: The non-empty GIDs of its port. Index and content may change at every boot.
      type: list
      elements: dict
      sample: [{"index": 3, "gid": "0000:0000:0000:0000:0000:ffff:c0a8:640a", "type": RoCE v2, "ndev": enp1s0f0np0, "family": ipv4, "address": 192.168.100.10}]
    counters:
      description: The counters of device and port by name. C(port_xmit_data) and C(port_rcv_data) count four bytes at a time.
      type: dict
      sample: {"port_xmit_data": 4820114, "out_of_sequence": 0}
devices:
  description: Whether each of O(devices) exists. Null if that cannot be read.
  returned: when asked for
  type: dict
  sample: {"/dev/infiniband": true}
listeners:
  description: Processes that listen on O(ports). The process is null or empty if it cannot be read. The container is the name of its container.
  returned: when asked for
  type: list
  elements: dict
  sample:
    - port: 8000
      address: 0.0.0.0
      pid: 1822
      process: python3
      cmdline: python3 -m http.server 8000
      since: "2026-11-21T01:52:59Z"
      container: ""
disk:
  description: The disk space for each of O(paths), with the existing directory that was measured. Null if that cannot be read.
  returned: when asked for
  type: dict
  sample: {"/var/lib/gb10": {"measured_at": /var/lib, "total_bytes": 3936358408192, "free_bytes": 851479363584}}
rdma:
  description: The RDMA devices with the interfaces on top of them.
  returned: when asked for
  type: list
  elements: dict
  sample:
    - name: rocep1s0f0
      netdevs: [enp1s0f0np0]
      ports: [{"port": 1, "state": ACTIVE, "physical_state": LinkUp, "link_layer": Ethernet, "rate": 200 Gb/sec (4X HDR)}]
gpus:
  description: The GPUs. Values that the driver does not report are null, such as the memory figures of a GB10.
  returned: when asked for
  type: list
  elements: dict
  contains:
    index:
      description: The number of the GPU.
      type: int
      sample: 0
    name:
      description: Its name.
      type: str
      sample: NVIDIA GB10
    uuid:
      description: Its id.
      type: str
      sample: GPU-4f1c2d3e-0000-0000-0000-000000000000
    driver_version:
      description: The version of the driver.
      type: str
      sample: 580.95.05
    memory_total_mb:
      description: Its own memory in MiB.
      type: int
    memory_used_mb:
      description: The used part of its own memory in MiB.
      type: int
    bus_id:
      description: Its address on the PCI bus.
      type: str
      version_added: 0.2.0
      sample: "0000000F:01:00.0"
    cuda_version:
      description: The newest CUDA that the driver supports.
      type: str
      version_added: 0.2.0
      sample: "13.0"
    vbios:
      description: The version of its firmware.
      type: str
      version_added: 0.2.0
      sample: 9A.0B.12.00.00
    utilisation_percent:
      description: Percent of the time that it was busy.
      type: int
      version_added: 0.2.0
      sample: 0
    sm_clock_mhz:
      description: The current clock of its processors, in MHz.
      type: int
      version_added: 0.2.0
      sample: 208
    sm_clock_max_mhz:
      description: Their highest clock, in MHz.
      type: int
      version_added: 0.2.0
      sample: 3003
    power_w:
      description: Its power draw, in W.
      type: float
      version_added: 0.2.0
      sample: 4.1
    temperature_c:
      description: Its temperature in degrees Celsius.
      type: int
      version_added: 0.2.0
      sample: 38
    pstate:
      description: Its performance state, from P0 (highest) to P12.
      type: str
      version_added: 0.2.0
      sample: P8
    throttle:
      description: Why its clock is not higher, by the driver's names. Null if the driver does not report it.
      type: list
      elements: str
      version_added: 0.2.0
      sample: [gpu_idle]
    persistence:
      description: Whether the driver stays loaded without users.
      type: bool
      version_added: 0.2.0
      sample: true
    mig:
      description: Whether it is split into instances.
      type: bool
      version_added: 0.2.0
    processes:
      description:
        - The processes that use it, each once.
        - C(type) is C for compute, G for graphics, C+G for both, C(used_mib) its memory in MiB.
        - Null if the list could not be read.
      type: list
      elements: dict
      version_added: 0.2.0
      sample: [{"pid": 40188, "type": C, "name": /usr/local/bin/ollama, "used_mib": 6220}]
    source:
      description: V(xml) for the full output of O(roots.nvidia_smi), V(csv) for the short one used as a fallback.
      type: str
      version_added: 0.2.0
      sample: xml
environment:
  description: Variables for engine, Ray, NCCL, UCX, Gloo, CUDA, the hub and related software that the node sets for all users.
  returned: when asked for
  type: list
  elements: dict
  version_added: 0.2.0
  contains:
    where:
      description:
        - The place that sets it.
        - C(/etc/environment), C(environment.d:FILE), C(profile.d:FILE), C(shell:FILE), C(systemd:UNIT), C(systemd:system.conf) or C(systemd:user.conf).
      type: str
      sample: /etc/environment
    name:
      description: The variable.
      type: str
      sample: VLLM_USE_FLASHINFER_MOE_FP4
    value:
      description: Its value as written, with V(<secret>) in place of a recognized secret.
      type: str
      sample: "0"
    path:
      description: The file.
      type: str
      sample: /etc/environment
netplan:
  description: The names of the files in netplan's directory. Empty without one, null if it cannot be read.
  returned: when asked for
  type: list
  elements: str
  version_added: 0.2.0
  sample: [99-nvidia-sync-cluster.yaml]
limits:
  description: Limits that affect RDMA, and the order in which processes are killed when memory runs out. A part that could not be read is null.
  returned: when asked for
  type: dict
  version_added: 0.2.0
  contains:
    docker_memlock_bytes:
      description: How much memory the daemon of Docker may lock, -1 for no limit, null if it does not run.
      type: int
      sample: -1
    containerd_memlock_bytes:
      description: The same for containerd. A container without its own limit inherits it if containerd is a separate service.
      type: int
      sample: -1
    ipc_removed_of:
      description: The ordinary users whose semaphores and shared memory systemd removes at the end of their last session. Null if unknown.
      type: list
      elements: str
      version_added: 0.2.0
      sample: [nvidia]
    sshd:
      description: The SSH daemon. Both are null if none runs, as where systemd starts one for each login.
      type: dict
      contains:
        pid:
          description: Its pid.
          type: int
          sample: 1204
        oom_score_adj:
          description: Its weight when memory runs out, from -1000 (never killed) to 1000.
          type: int
          sample: -1000
    earlyoom:
      description: The daemon that ends processes before memory runs out.
      type: dict
      contains:
        running:
          description: Whether it runs on the node, outside of containers.
          type: bool
          sample: true
        version:
          description: The version that it reports, empty if it reports none. Null if it does not run.
          type: str
          sample: "1.7"
        args:
          description: Its command-line arguments. Null if it does not run.
          type: str
          sample: -r 3600 -m 4,2 -s 100,100
        mem_percent:
          description: The percentage of available memory at which it begins to act.
          type: float
          sample: 4.0
        swap_percent:
          description: The percentage of free swap at which it begins to act. Both must be reached.
          type: float
          sample: 100.0
        acts_below_mb:
          description:
            - MiB of available memory at which its memory threshold is reached now, by the two ways its versions count.
            - C(of_total) is of all memory, before 1.8.
            - C(of_user) is of available memory and that of processes, from 1.8 on, where CUDA memory does not count.
          type: dict
          sample: {"of_total": 4901, "of_user": 92}
        effective:
          description:
            - Whether it can take effect with the existing swap.
            - Also false if it does not run, and for versions from 1.8 on, which leave out a driver's memory.
            - Null if that depends on how much will be swapped, or on a version that cannot be read.
          type: bool
          sample: true
        why:
          description: The reason, with the figures.
          type: str
          sample: "its swap threshold (100 %) always holds: it acts at 4 % of available memory"
kernel_log:
  description: The kernel's messages since boot about GPU, PCIe, fabric and lack of memory. Null if no source could be read.
  returned: when asked for
  type: dict
  version_added: 0.2.0
  contains:
    since_boot:
      description: Whether the first line of this boot was among the lines read.
      type: bool
      sample: true
    source:
      description: The log's source.
      type: str
      sample: /dev/kmsg
    events:
      description: The messages. Messages that differ only in numbers are one event, with the text of the first.
      type: list
      elements: dict
      contains:
        time:
          description: When it was first logged, in UTC. Null if the log does not show it.
          type: str
          sample: "2026-11-21T01:52:59Z"
        last:
          description: When it was last logged.
          type: str
          sample: "2026-11-21T01:52:59Z"
        kind:
          description:
            - V(nv_no_memory), V(xid), V(gpu) (it did not start, or was lost) and V(nvrm) from the GPU's driver; V(aer), V(pcie) (a link that was retrained),
              V(removed) (a card that was removed), V(firmware) and V(mlx5) from the fabric; V(oops), V(stall), V(wifi), V(smmu), V(hardware), V(suspend) and
              V(oom) from the kernel.
            - V(memory) is the kernel's report of the memory at every boot.
          type: str
          sample: xid
        text:
          description: The message.
          type: str
          sample: "NVRM: Xid (PCI:000f:01:00): 43, pid=2211, name=VLLM::EngineCor, Ch 00000008"
        count:
          description: How often it was logged.
          type: int
          sample: 1
    truncated:
      description: Whether something was omitted.
      type: bool
      sample: false
tenants:
  description:
    - Processes outside this collection's containers that use CUDA memory, or are known to use it on demand. Those with the most memory
      come first.
    - M(gb10.cluster.cuda_zombie_check) finds processes that have ended but still use memory.
  returned: when asked for
  type: list
  elements: dict
  version_added: 0.2.0
  contains:
    pid:
      description: Its pid.
      type: int
      sample: 40188
    name:
      description: Its program, or the title that it set.
      type: str
      sample: ollama
    cmdline:
      description: Its command line, without recognized secrets, cut after 500 characters.
      type: str
      sample: /usr/local/bin/ollama runner --model /usr/share/ollama/blobs/sha256-7121
    user:
      description: Its user.
      type: str
      sample: ollama
    kind:
      description:
        - Its engine if it is part of one, V(vllm), V(sglang), V(tensorrt_llm), V(triton), V(llama_cpp), V(ollama), V(tensorfold) or V(ray), as
          M(gb10.cluster.stack_info) identifies them.
        - Otherwise V(tts) and V(asr) for speech, V(desktop) (also all that the driver lists as graphics only), V(comfyui) or V(other).
      type: str
      sample: ollama
    container:
      description: The name of its container. Empty outside of any.
      type: str
      sample: ""
    cuda:
      description: Whether it has CUDA's device open now. Null if that cannot be read.
      type: bool
      sample: true
    gpu_mib:
      description: Its GPU memory in MiB. Null if the driver does not list it or does not report it.
      type: int
      sample: 6220
    rss_mb:
      description: Its ordinary memory in MiB.
      type: int
      sample: 811
models:
  description: The models in O(model_roots), one entry per revision.
  returned: when asked for
  type: list
  elements: dict
  version_added: 0.2.0
  contains:
    repo:
      description: The repository.
      type: str
      sample: nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4
    revision:
      description: The commit. Null if there are only unfinished downloads.
      type: str
      sample: 2f9d4a0c3b5e6f708192a3b4c5d6e7f801234567
    refs:
      description: The branches and tags that the cache has for it.
      type: list
      elements: str
      sample: [main]
    complete:
      description:
        - Whether it can be served, according to names, sizes and headers, as in M(gb10.cluster.model_info).
        - Null if it is not a safetensors checkpoint, because that is unknown without reading it.
      type: bool
      sample: true
    missing:
      description: The files that are absent or unusable.
      type: list
      elements: str
      sample: []
    unfinished:
      description: Downloads of the repository that did not finish, or still run.
      type: int
      sample: 0
    unfinished_bytes:
      description: Bytes of these downloads so far. If there is no revision yet they are in RV(models[].bytes), and this is 0.
      type: int
      sample: 0
      version_added: 0.2.0
    bytes:
      description: The bytes of its files.
      type: int
      sample: 80371298048
    path:
      description: Its path.
      type: str
      sample: /home/spark/.cache/huggingface/hub/models--org--name/snapshots/2f9d4a0c3b5e6f708192a3b4c5d6e7f801234567
zombies:
  description:
    - A quick result of M(gb10.cluster.cuda_zombie_check) that waits for nothing and ends nothing. It never proves a leak.
    - If RV(zombies.verdict) is not V(pass), run that module, which waits for processes and memory.
  returned: when asked for
  type: dict
  version_added: 0.2.0
  contains:
    verdict:
      description: The most severe verdict among the findings.
      type: str
      sample: pass
    findings:
      description: The findings, as that module returns them.
      type: list
      elements: dict
      sample: []
    classes:
      description: Pids by class.
      type: dict
      sample: {live: [4711], defunct: [], ghost: [], orphan: [], unknown: []}
    needs_reboot:
      description: Whether only a reboot frees the memory.
      type: bool
      sample: false
starts:
  description:
    - This node's memory in successful starts, from M(gb10.cluster.cluster_record). RV(gb10.cluster.cluster_record#module:record) describes
      each entry. Null if they could not be read.
  returned: when asked for
  type: list
  elements: dict
  version_added: 0.2.0
  contains:
    cluster:
      description: The cluster that was started.
      type: str
      sample: gb10
    profile:
      description: Id of the profile.
      type: str
      sample: nemotron_3_super_tp2
    context:
      description: The context length in tokens.
      type: int
      sample: 262144
    before_mb:
      description: MiB available before the start.
      type: int
      sample: 118800
    steady_mb:
      description: MiB available once the engine had answered.
      type: int
      sample: 20800
held:
  description:
    - The node's memory used by processes in this collection's containers now, by cluster name. It is freed when they end. Shared
      memory and pages of files are left out. Null if unknown.
  returned: when asked for
  type: dict
  version_added: 0.2.0
  sample: {gb10: {gpu_mib: 88211, anon_mb: 6120}}
ladder:
  description:
    - How far bench --tags ladder raised the context on this node, without the memory curves, from M(gb10.cluster.cluster_record).
      O(gb10.cluster.cluster_record#module:climb) describes each entry. Null if they could not be read.
  returned: when asked for
  type: list
  elements: dict
  version_added: 0.2.0
  contains:
    cluster:
      description: The cluster that was started.
      type: str
      sample: gb10
    profile:
      description: Id of the profile.
      type: str
      sample: nemotron_3_super_tp2
    rung:
      description: The last good context length in tokens, 0 if there is none.
      type: int
      sample: 524288
    outcome:
      description: V(climbing) for one that is running or was interrupted, V(top), V(returned) or V(off).
      type: str
      sample: returned
    reason:
      description: Why it ended before the last rung. Empty if it did not.
      type: str
      sample: "1048576: on spark-2 the guard acted"
companions:
  description:
    - The services that O(companions) declares, in that order, followed by containers of this collection's companions that it does not declare.
    - Null if they could not be read.
  returned: when asked for
  type: list
  elements: dict
  version_added: 0.2.0
  contains:
    name:
      description: Its name.
      type: str
      sample: ollama
    kind:
      description: V(container) or V(unit).
      type: str
      sample: unit
    declared:
      description: Whether it is in O(companions).
      type: bool
      sample: true
    container:
      description: The name of its container. Empty for a unit and if there is none.
      type: str
      sample: gb10-companion-ollama
    container_id:
      description: The id of its container.
      type: str
      sample: ""
    unit:
      description: Its unit. Empty for a container.
      type: str
      sample: ollama.service
    state:
      description: Its state in Docker or systemd. V(absent) without a container, V(foreign) if a container from outside this collection has its
          name, V(not-found) without a unit.
      type: str
      sample: active
    running:
      description: Whether it has processes, or is about to.
      type: bool
      sample: true
    port:
      description: Its port. Null for a container that does not declare it.
      type: int
      sample: 11434
    health_path:
      description: The path requested at that port.
      type: str
      sample: /api/tags
    healthy:
      description: Whether it answers with a status of 200 to 299 within 3 seconds. Null if it was not asked.
      type: bool
      sample: true
    health:
      description: The answer in words.
      type: str
      sample: status 200
    pids:
      description: Its pids.
      type: list
      elements: int
      sample: [40188]
    gpu_mib:
      description: Their GPU memory in MiB. Null if the driver does not report it.
      type: int
      sample: 6220
    anon_mb:
      description: Their other memory without a file behind it, in MiB.
      type: int
      sample: 811
    spec:
      description: The digest of the options its container was created with. Empty for a unit and if there is none.
      type: str
      sample: "2:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    fields:
      description: The options its container was created with.
      type: dict
      sample: {"port": 11434}
    log:
      description: The last lines of its log, for one of O(await_up) that has ended.
      type: str
      sample: "Error: listen tcp 127.0.0.1:11434: bind: address already in use"
mode:
  description: The declared mode, as RV(gb10.cluster.node_state_info#module:mode). Empty if none was ever declared, null if it could not be read.
  returned: when asked for
  type: dict
  version_added: 0.2.0
  sample: {}
texts:
  description:
    - The texts that this collection parses, unchanged from the node. These are the output of the NVIDIA driver's tool, the kernel's log and its memory
      figures, Docker's information about itself, and the ConnectX functions in sysfs. They identify the machine. M(gb10.cluster.calibration) replaces that
      before it writes them anywhere.
  returned: when asked for by name
  type: dict
  version_added: 0.2.0
  contains:
    files:
      description: The recorded texts, each with C(name) (a path that identifies it) and C(text), or C(link) for the target of a symbolic link.
      type: list
      elements: dict
      sample: [{name: proc/sys/vm/swappiness, text: "60"}]
    errors:
      description: What could not be read, each with C(section) (the file that is missing), C(verdict), C(error) and C(remedy).
      type: list
      elements: dict
      sample: []
    hostname:
      description: The node's own host name.
      type: str
      sample: spark-1
errors:
  description: Facts that could not be read, with the reason. Empty if all were read.
  returned: always
  type: list
  elements: dict
  contains:
    section:
      description:
        - The result that is empty or null, in whole or in part, because of it.
        - A part of RV(docker) is listed by its full name, such as C(docker.cdi_devices).
      type: str
      sample: gpus
    verdict:
      description: V(unknown) or V(block).
      type: str
      sample: unknown
    error:
      description: What went wrong.
      type: str
      sample: "nvidia-smi cannot be run: No such file or directory (nvidia-smi)"
    remedy:
      description: What to do about it.
      type: str
      sample: Install nvidia-smi on this node, or set its path.
"""

import importlib.metadata
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._calibrate.recording import Recorder
from ansible_collections.gb10.cluster.plugins.module_utils._companion import running as companions
from ansible_collections.gb10.cluster.plugins.module_utils._docker import survey
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, name_of
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section, names
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver_xml, zombie_check
from ansible_collections.gb10.cluster.plugins.module_utils._host import default_env, kernel, kernel_log, timekeeping
from ansible_collections.gb10.cluster.plugins.module_utils._host.devices import has_device
from ansible_collections.gb10.cluster.plugins.module_utils._host.disk import disk
from ansible_collections.gb10.cluster.plugins.module_utils._image import images
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._memory import node_memory
from ansible_collections.gb10.cluster.plugins.module_utils._model import hub_caches
from ansible_collections.gb10.cluster.plugins.module_utils._module import run
from ansible_collections.gb10.cluster.plugins.module_utils._network import firewall, net_devices, rdma
from ansible_collections.gb10.cluster.plugins.module_utils._network.listeners import listeners
from ansible_collections.gb10.cluster.plugins.module_utils._process import process_table, tenants
from ansible_collections.gb10.cluster.plugins.module_utils._protect import limits
from ansible_collections.gb10.cluster.plugins.module_utils._records import climbs, starts
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME, Sections, once, pending
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: The sections, in the order of the result. Each is a method of :class:`Look`.
SECTIONS = (
    "memory",
    "kernel",
    "docker",
    "containers",
    "foreign_containers",
    "images",
    "firewall",
    "interfaces",
    "fabric",
    "rdma",
    "devices",
    "listeners",
    "disk",
    "gpus",
    "environment",
    "netplan",
    "limits",
    "kernel_log",
    "tenants",
    "models",
    "zombies",
    "starts",
    "held",
    "ladder",
    "companions",
    "mode",
)
#: Sections that are only read when they are requested by name.
BY_NAME = ("texts",)
#: Sections that run the driver's tool, which took more than half of the total time in the lab.
OF_DRIVER = frozenset(("gpus", "tenants", "zombies", "held"))

#: Seconds between two checks of companions while waiting for them.
LOOK_SECONDS = 1.0


def sdk_version() -> str | None:
    """Return the version of the Docker SDK that this Python would import, None when there is none."""
    try:
        return importlib.metadata.version("docker")
    except importlib.metadata.PackageNotFoundError:
        return None


def with_addresses(interface: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return an interface with its plain addresses in addition to its networks."""
    return {**interface, "addresses": [network["address"] for network in interface["networks"]]}


def require_seen(entries: t.Iterable[dict[str, t.Any]]) -> None:
    """Raise :class:`UnknownState` when the process of a listener cannot be seen: it could be any process."""
    hidden = sorted({entry["port"] for entry in entries if entry["pid"] is None})
    if hidden:
        raise UnknownState(f"it is unknown whose process listens on port {', '.join(map(str, hidden))}", remedy=BECOME)


class Look:
    """Reads some sections of a node. What several sections need is read only once, and if that fails, each of them fails."""

    def __init__(self, params: dict[str, t.Any], api: EngineApi, wanted: t.Container[str] = SECTIONS) -> None:
        self.params = params
        self.api = api
        self.proc, self.sysfs = params["roots"]["proc_root"], params["roots"]["sysfs_root"]
        self.sections = Sections()
        self.answers = once(lambda: (api.get("/version"), api.get("/info")))
        self.entries = once(self._entries)
        self.processes = once(lambda: process_table.scan(self.proc))
        self.links = once(lambda: net_devices.interfaces(self.sysfs, self.proc))
        self.rdma_devices = once(lambda: net_devices.rdma_devices(self.sysfs))
        self.log = once(lambda: kernel_log.kernel_log(params["roots"]["kernel_log"], self.proc, params["tool_timeout"]))
        self.cards = once(lambda: driver_xml.gpus_or_none(params["roots"]["nvidia_smi"], params["tool_timeout"], self.sections.section("gpus")))
        if any(section in wanted for section in OF_DRIVER):
            self.cards = pending(self.cards)

    def _entries(self) -> list[dict[str, t.Any]]:
        self.answers()  # an engine that does not answer is only waited for once
        return survey.entries_of(self.api.containers({}))

    def _listed(self, section: Section) -> list[dict[str, t.Any]] | None:
        """Return the processes that the driver lists, None where it does not list those of every GPU."""
        cards = section(self.cards, None)
        if cards is None or any(card["processes"] is None for card in cards):
            return None
        return [{**process, "gpu": card["index"]} for card in cards for process in card["processes"]]

    def _meminfo(self) -> dict[str, int]:
        return node_memory.read_meminfo(self.proc, self.params["roots"]["meminfo"])

    # -- the sections, by name -----------------------------------------------------------------------------------------------------------

    def memory(self) -> dict[str, t.Any] | None:
        return self.sections.read("memory", lambda: node_memory.memory(self.proc, self.params["roots"]["meminfo"], self.sections.section("memory")))

    def kernel(self) -> dict[str, t.Any] | None:
        section = self.sections.section("kernel")
        facts = section(lambda: kernel.kernel(self.proc, self.sysfs, self.params["roots"]["modules_root"], self.params["roots"]["boot_root"], section))
        machine = section(lambda: kernel.machine(self.params["roots"]["etc_root"]))
        return facts and {**facts, "machine": machine, "clock": section(lambda: timekeeping.clock(self.proc, self.sysfs, section))}

    def docker(self) -> dict[str, t.Any]:
        section = self.sections.section("docker")
        engine = section(lambda: survey.engine(*self.answers()), survey.NO_ENGINE)
        if engine["reachable"]:
            engine = survey.depth(engine, self.answers()[1], self.params["roots"]["etc_root"], self.sections.section("docker.cdi_devices"))
            # Only root can enter Docker's directory, so the file system of its nearest accessible parent is used.
            engine["root_free_bytes"] = section(lambda: disk(engine["root_dir"])["free_bytes"])
            engine["memlock_bytes"] = self.sections.read(
                "docker.memlock_bytes", lambda: limits.memlock(self.processes().processes.values(), "dockerd", self.proc)
            )
        return {**engine, "python_docker": sdk_version()}

    def containers(self) -> list[dict[str, t.Any]]:
        return self.sections.read("containers", lambda: survey.ours(self.entries()), [])

    def foreign_containers(self) -> list[dict[str, t.Any]]:
        section = self.sections.section("foreign_containers")

        def read() -> list[dict[str, t.Any]]:
            pids = process_table.by_container(section(lambda: self.processes().processes, {}).values())
            return survey.foreign(self.entries(), self.api.inspect, pids, section)

        return section(read, [])

    def images(self) -> dict[str, dict[str, t.Any] | None] | None:
        def read() -> dict[str, dict[str, t.Any] | None]:
            if self.params["images"]:
                self.answers()  # an engine that does not answer is only waited for once
            return images.images(self.api, self.params["images"])

        return self.sections.read("images", read)

    def firewall(self) -> dict[str, t.Any] | None:
        return self.sections.read("firewall", lambda: firewall.firewall(self.params["nft"], self.params["tool_timeout"], self.params["roots"]["etc_root"]))

    def interfaces(self) -> list[dict[str, t.Any]]:
        return [with_addresses(interface) for interface in self.sections.read("interfaces", self.links, [])]

    def fabric(self) -> list[dict[str, t.Any]]:
        section = self.sections.section("fabric")
        return section(lambda: rdma.fabric(self.sysfs, self.proc, section, self.links(), self.rdma_devices()), [])

    def rdma(self) -> list[dict[str, t.Any]]:
        return self.sections.read("rdma", self.rdma_devices, [])

    def devices(self) -> dict[str, bool | None]:
        return {path: self.sections.read("devices", lambda path=path: has_device(path)) for path in self.params["devices"]}

    def listeners(self) -> list[dict[str, t.Any]]:
        listening = self.sections.read("listeners", lambda: listeners(self.params["ports"], self.proc), [])
        self.sections.read("listeners", lambda: require_seen(listening))
        # Without Docker a container is named by its id.
        entries = self.sections.read("containers", self.entries, []) if any(entry["container"] for entry in listening) else []
        return [{**entry, "container": survey.container_name(entry["container"], entries)} for entry in listening]

    def disk(self) -> dict[str, t.Any]:
        return {path: self.sections.read("disk", lambda path=path: disk(path)) for path in self.params["paths"]}

    def gpus(self) -> list[dict[str, t.Any]]:
        return self.sections.read("gpus", self.cards, [])

    def environment(self) -> list[dict[str, str]]:
        section = self.sections.section("environment")
        return section(lambda: default_env.environment(self.params["roots"]["etc_root"], section), [])

    def netplan(self) -> list[str] | None:
        return self.sections.read("netplan", lambda: names(os.path.join(self.params["roots"]["etc_root"], "netplan")))

    def limits(self) -> dict[str, t.Any] | None:
        section = self.sections.section("limits")
        etc_root = self.params["roots"]["etc_root"]
        return section(lambda: limits.limits(self.processes().processes.values(), self._meminfo, self.proc, section, etc_root))

    def kernel_log(self) -> dict[str, t.Any] | None:
        return self.sections.read("kernel_log", self.log)

    def tenants(self) -> list[dict[str, t.Any]]:
        section = self.sections.section("tenants")

        def read() -> list[dict[str, t.Any]]:
            seen = self.processes()
            cards = section(self.cards, [])
            listed = [{**process, "gpu": card["index"]} for card in cards for process in card["processes"] or []]
            in_containers = any(process.container for process in seen.processes.values())
            entries = section(self.entries, []) if in_containers else []
            own = {entry["Id"] for entry in entries if survey.is_ours(entry)}
            names = {entry["Id"]: name_of(entry) for entry in entries}
            return tenants.tenants(seen, listed, own, names, self.proc, section)

        return section(read, [])

    def models(self) -> list[dict[str, t.Any]]:
        return hub_caches.models(self.params["model_roots"], self.sections.section("models"))

    def zombies(self) -> dict[str, t.Any]:
        readers = zombie_check.Readers(self.cards, self.processes, self.log)
        # The check itself reports what it could not read.
        result = zombie_check.check({**zombie_check.GLANCE, **self.params}, True, readers)
        return {name: result[name] for name in ("verdict", "findings", "classes", "needs_reboot")}

    def starts(self) -> list[dict[str, t.Any]] | None:
        return self.sections.read("starts", lambda: starts.FILE.on_node(self.params["state_dir"]))

    def held(self) -> dict[str, dict[str, int | None]] | None:
        section = self.sections.section("held")

        def read() -> dict[str, dict[str, int | None]]:
            clusters = {container["id"]: container["cluster"] for container in survey.ours(self.entries()) if container["cluster"]}
            listed = self._listed(section) if clusters else []
            return tenants.held(self.processes(), listed, clusters, self.proc)

        return section(read)

    def ladder(self) -> list[dict[str, t.Any]] | None:
        return self.sections.read("ladder", lambda: climbs.on_node(self.params["state_dir"]))

    def companions(self) -> list[dict[str, t.Any]] | None:
        section = self.sections.section("companions")

        def read() -> list[dict[str, t.Any]]:
            timeout = self.params["tool_timeout"]
            return companions.look(self.params["companions"], self.entries(), self.processes(), lambda: self._listed(section), self.proc, timeout, section)

        return section(read)

    def mode(self) -> modes.Record | None:
        return self.sections.read("mode", lambda: modes.read(self.params["state_dir"]) or {})

    def texts(self) -> dict[str, t.Any]:
        return Recorder(self.params["roots"], self.params["tool_timeout"], self.api).everything()


def answer(params: dict[str, t.Any], api: EngineApi) -> dict[str, t.Any]:
    """Return the present state of the node."""
    wanted = params["sections"] or SECTIONS
    look = Look(params, api, wanted)
    result = {section: getattr(look, section)() for section in (*SECTIONS, *BY_NAME) if section in wanted}
    # The driver's tool runs in parallel with the rest, so the order of the errors varies.
    errors = sorted(look.sections.errors, key=lambda entry: SECTIONS.index(entry["section"].partition(".")[0]))
    blind = ", ".join(sorted({entry["section"] for entry in errors}))
    return {**result, "errors": errors, "msg": f"could not see: {blind}" if blind else "all was seen"}


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    api = EngineApi(params["docker_socket"], params["docker_timeout"])
    result: dict[str, t.Any] = {}
    for _elapsed in clock(params["await_timeout"], LOOK_SECONDS):
        result = answer(params, api)
        if companions.settled(result.get("companions") or [], params["await_up"], params["await_down"]):
            break
    if params["await_up"] and result.get("companions"):
        result["companions"] = companions.with_logs(result["companions"], params["await_up"], api, params["tool_timeout"])
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "sections": {"type": "list", "elements": "str", "default": [], "choices": [*SECTIONS, *BY_NAME]},
            "companions": {"type": "list", "elements": "dict", "default": []},
            "await_up": {"type": "list", "elements": "str", "default": []},
            "await_down": {"type": "list", "elements": "str", "default": []},
            "await_timeout": {"type": "int", "default": 0},
            # The action plugin implements this option.
            "reach": {"type": "bool", "default": False},
            "devices": {"type": "list", "elements": "path", "default": ["/dev/infiniband"]},
            "ports": {"type": "list", "elements": "int", "default": []},
            "paths": {"type": "list", "elements": "path", "default": []},
            "images": {"type": "list", "elements": "str", "default": []},
            "nft": {"type": "str", "default": "nft"},
            "model_roots": {"type": "list", "elements": "path", "default": []},
            "roots": ROOTS,
            "tool_timeout": {"type": "int", "default": 30},
            "pid_namespace": {"type": "str", "choices": ["auto", "host"], "default": "auto"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
