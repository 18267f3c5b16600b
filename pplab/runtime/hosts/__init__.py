"""Runs on several machines.

``hostfile`` (which machines, how many ranks on each), ``launch`` (the stock `deepspeed` command
starts the ranks there, through pdsh, OpenMPI or Slurm), ``remote`` (a rank's way back to the
notebook's machine), ``clocks`` (one time scale for all), ``network`` (two machines on one, to try
it: network namespaces with a slow link between them).
"""

from pplab.core.hostfile import Host
from pplab.runtime.hosts.hostfile import read_hosts, slurm_hosts, spread
from pplab.runtime.hosts.network import NotPermitted, two_hosts

__all__ = ["Host", "NotPermitted", "read_hosts", "slurm_hosts", "spread", "two_hosts"]
