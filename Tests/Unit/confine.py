"""Runs a program under the limits of a unit and its filter of system calls: confine.py SETTINGS PROGRAM ARGUMENT...

SETTINGS is JSON: `allowed`, the names of system calls; `families`, the numbers of socket families; `files`, the limit of open files;
`tasks`; `umask`. Needs no_new_privs. It uses libseccomp through its C interface, which needs no further package.
"""
import ctypes
import json
import os
import resource
import sys

ALLOW = 0x7FFF0000
EPERM, ENOSYS, EAFNOSUPPORT = 1, 38, 97
EQUAL, MASKED = 4, 7
WRITE, EXECUTE = 2, 4
# CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
NAMESPACES = 0x80 | 0x20000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
SUID_SGID = 0o6000


class Comparison(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def error(number):
    return 0x00050000 | number


class Filter:
    def __init__(self):
        self.library = ctypes.CDLL("libseccomp.so.2")
        self.library.seccomp_init.restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.library.seccomp_init(ctypes.c_uint32(error(EPERM))))

    def rule(self, name, action=ALLOW, *comparisons):
        number = self.library.seccomp_syscall_resolve_name(name.encode())
        # Does not exist on this machine.
        if number < 0:
            return
        array = (Comparison * len(comparisons))(*comparisons)
        code = self.library.seccomp_rule_add_array(
            self.context, ctypes.c_uint32(action), number, len(comparisons), array)
        if code != 0:
            sys.exit(f"the rule of {name} cannot be added: {os.strerror(-code)}")

    def load(self):
        code = self.library.seccomp_load(self.context)
        if code != 0:
            sys.exit(f"the filter cannot be loaded: {os.strerror(-code)}")


def masked(argument, mask, value=0):
    return Comparison(argument, MASKED, mask, value)


def confine(settings):
    os.umask(settings["umask"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (settings["tasks"], settings["tasks"]))
    # Unprivileged processes cannot raise a limit.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = settings["files"] if most == resource.RLIM_INFINITY else min(settings["files"], most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    filter = Filter()
    # Calls that are allowed only with some arguments: MemoryDenyWriteExecute, RestrictNamespaces, RestrictSUIDSGID,
    # RestrictAddressFamilies, LockPersonality.
    special = {
        "mmap": [(masked(2, WRITE),), (masked(2, EXECUTE),)],
        "mprotect": [(masked(2, EXECUTE),)],
        "pkey_mprotect": [(masked(2, EXECUTE),)],
        "shmat": [(masked(2, 0o100000),)],
        "clone": [(masked(0, NAMESPACES),)],
        "unshare": [(masked(0, NAMESPACES),)],
        "chmod": [(masked(1, SUID_SGID),)],
        "fchmod": [(masked(1, SUID_SGID),)],
        "fchmodat": [(masked(2, SUID_SGID),)],
        "socket": [(Comparison(0, EQUAL, family, 0),) for family in settings["families"]],
        "personality": [(Comparison(0, EQUAL, 0xFFFFFFFF, 0),), (Comparison(0, EQUAL, 0, 0),)],
        "setns": [],
    }
    for name in settings["allowed"]:
        if name == "clone3":
            continue
        if name not in special:
            filter.rule(name)
        for comparisons in special.get(name, []):
            filter.rule(name, ALLOW, *comparisons)
    # Its arguments cannot be inspected; the C library then uses `clone`.
    filter.rule("clone3", error(ENOSYS))
    filter.load()


if __name__ == "__main__":
    confine(json.loads(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
