"""One server for a class: `make hub`, or ``jupyterhub -f deploy/jupyterhub_config.py``.

Learners open the address, choose a name, and give the password of the class. Each gets a JupyterLab
with copies of the chapters and labs, a process server and ranks of their own.

What to set, in the environment (defaults in brackets):

    PPLAB_HUB_PASSWORD   the password of the class, 8 characters or more; no default
    PPLAB_HUB_ADMIN      password of the user "instructor", 32 characters or more [no such user]
    PPLAB_HUB_IP         where it listens [127.0.0.1]: put a proxy with TLS before it
    PPLAB_HUB_PORT       the port [8000]; the next two are used too, on this machine only
    PPLAB_HUB_HOMES      folder of the learners' homes [~/.local/state/pplab/homes]
    PPLAB_HUB_IDLE       seconds after which an idle server is stopped [3600]
    PPLAB_MAX_RANKS      ranks each learner may run at once [4]
    PPLAB_LEARNER_MB     memory to plan for one learner, in MB [1200]: more learners than fit are
                         turned away; docs/instructor.md says what was measured

Started by root, every learner gets an account of the machine of their own, made at the first login,
so that the system keeps their files and processes apart. Started by anybody else, all servers run
under that account: good for people who trust each other, and it says so at the start.
"""

import grp
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
from jupyterhub.auth import LocalAuthenticator
from jupyterhub.authenticators.shared import SharedPasswordAuthenticator
from jupyterhub.spawner import LocalProcessSpawner, SimpleLocalProcessSpawner

ROOT = Path(__file__).resolve().parents[1]
AS_ROOT = os.geteuid() == 0 and not os.environ.get("PPLAB_HUB_HOMES")
STATE = Path.home() / ".local" / "state" / "pplab"
HOMES = Path(os.environ.get("PPLAB_HUB_HOMES") or STATE / "homes").resolve()
IP, PORT = (
    os.environ.get("PPLAB_HUB_IP", "127.0.0.1"),
    int(os.environ.get("PPLAB_HUB_PORT", "8000")),
)
RANKS = os.environ.get("PPLAB_MAX_RANKS", "4")
LEARNER_MB = int(os.environ.get("PPLAB_LEARNER_MB", "1200"))
IDLE = int(os.environ.get("PPLAB_HUB_IDLE", "3600"))

c = get_config()  # noqa: F821  # jupyterhub puts it here

# -- who may come in ------------------------------------------------------------------------------


GROUP = "pplab-learners"


def is_a_learner(name):
    """True for a name without an account, and for an account that this hub has made: with the
    password of a class nobody may become root, or anybody else who was here before."""
    try:
        return pwd.getpwnam(name).pw_gid == grp.getgrnam(GROUP).gr_gid
    except KeyError:
        return name not in {account.pw_name for account in pwd.getpwall()}


class Classroom(LocalAuthenticator, SharedPasswordAuthenticator):
    """One password for the class; with root's rights, an account for each name."""

    async def authenticate(self, handler, data):
        name = self.normalize_username(data["username"])
        if not is_a_learner(name):
            self.log.warning("%s is an account of this machine and no learner's: refused", name)
            return None
        return await super().authenticate(handler, data)


if len(os.environ.get("PPLAB_HUB_PASSWORD", "")) < 8:
    sys.exit("set PPLAB_HUB_PASSWORD, the password of the class: 8 characters or more")
c.JupyterHub.authenticator_class = Classroom if AS_ROOT else SharedPasswordAuthenticator
c.SharedPasswordAuthenticator.user_password = os.environ["PPLAB_HUB_PASSWORD"]
c.Authenticator.username_pattern = r"[a-z][a-z0-9_-]{0,30}"  # what is an account and a folder name
c.Authenticator.allow_all = True
if admin := os.environ.get("PPLAB_HUB_ADMIN"):
    c.SharedPasswordAuthenticator.admin_password = admin
    c.Authenticator.admin_users = {"instructor"}
if AS_ROOT:
    subprocess.run(["groupadd", "--force", GROUP], check=True)
    c.LocalAuthenticator.create_system_users = True
    c.LocalAuthenticator.add_user_cmd = [
        "adduser", "--quiet", "--gecos", "", "--disabled-password", "--ingroup", GROUP
    ]  # fmt: skip

# -- what each of them gets -----------------------------------------------------------------------


def course_for(spawner):
    """Copy what is missing of the course into a learner's home; never over their own work."""
    home = Path(f"~{spawner.user.name}").expanduser() if AS_ROOT else HOMES / spawner.user.name
    made = []
    for name in ("chapters", "labs"):
        for path in sorted((ROOT / name).glob("*.ipynb")):
            copy = home / "pplab" / name / path.name
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy)
                made += [copy, copy.parent, copy.parent.parent]
    if AS_ROOT:
        for path in made:
            shutil.chown(path, spawner.user.name)


c.JupyterHub.spawner_class = LocalProcessSpawner if AS_ROOT else SimpleLocalProcessSpawner
c.SimpleLocalProcessSpawner.home_dir_template = f"{HOMES}/{{username}}"
c.Spawner.pre_spawn_hook = course_for
c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
c.Spawner.notebook_dir = "~/pplab"
c.Spawner.default_url = "/lab/tree/chapters/00_start_here.ipynb"
c.Spawner.start_timeout = 120
c.Spawner.http_timeout = 60
c.Spawner.environment = {
    "JUPYTER_CONFIG_PATH": str(ROOT / "jupyter_config"),
    "PPLAB_MAX_RANKS": RANKS,
    "PYTHONPATH": str(ROOT),
    "OMP_NUM_THREADS": "1",
}
c.Spawner.args = [
    "--LabApp.news_url=",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--KernelManager.transport_encryption=auto",  # other learners share the machine
    f"--MappingKernelManager.cull_idle_timeout={IDLE}",
    "--MappingKernelManager.cull_interval=60",
    *(["--allow-root"] if os.geteuid() == 0 and not AS_ROOT else []),
]

# -- how many fit ---------------------------------------------------------------------------------

# a gigabyte stays for the system and the hub
FIT = max(1, int((psutil.virtual_memory().total / 1e6 - 1000) // LEARNER_MB))
c.JupyterHub.active_server_limit = FIT
c.JupyterHub.concurrent_spawn_limit = 5  # a server takes seconds of a core to start

# -- where it listens, and what it cleans up ------------------------------------------------------

c.JupyterHub.bind_url = f"http://{IP}:{PORT}"
c.JupyterHub.hub_port = PORT + 1
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{PORT + 2}"
PROXY = shutil.which("configurable-http-proxy") or (
    ROOT / "build" / "npm" / "hub" / "node_modules" / ".bin" / "configurable-http-proxy"
)
c.ConfigurableHTTPProxy.command = [str(PROXY)]
c.JupyterHub.cleanup_servers = True  # learners' servers end with the hub
STATE.mkdir(parents=True, exist_ok=True)
WHERE = HOMES if not AS_ROOT else STATE
WHERE.mkdir(parents=True, exist_ok=True, mode=0o711)
c.JupyterHub.db_url = f"sqlite:///{WHERE}/hub.sqlite"
c.JupyterHub.cookie_secret_file = f"{WHERE}/hub_cookie_secret"
c.ConfigurableHTTPProxy.pid_file = f"{WHERE}/hub_proxy.pid"
c.JupyterHub.load_roles = [
    {
        "name": "idle-culler",
        "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
        "services": ["idle-culler"],
    }
]
c.JupyterHub.services = [
    {
        "name": "idle-culler",
        "command": [sys.executable, "-m", "jupyterhub_idle_culler", f"--timeout={IDLE}"],
    },
]
whose = (
    "each learner under an account of their own"
    if AS_ROOT
    else f"all learners under this account, homes in {HOMES}: they can read each other's files"
)
print(
    f"{c.JupyterHub.bind_url}: {whose}; {RANKS} ranks a learner at once; {FIT} learners at "
    f"{LEARNER_MB} MB each fit into this machine's memory",
    flush=True,
)
