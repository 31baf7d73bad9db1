"""A RabbitMQ server for the tests, with its own name, ports and directories; nothing of it remains afterwards.

    server.py COMMAND...

starts one for the command, which finds it through the environment variable SERVER."""
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PROGRAM = os.environ.get("RABBITMQ_SERVER", "/usr/lib/rabbitmq/bin/rabbitmq-server")
CTL = os.environ.get("RABBITMQ_CTL", "/usr/lib/rabbitmq/bin/rabbitmqctl")
PASSWORD = "correct horse battery"
BODY_MOST = 1 << 20
PATIENCE = 300  # seconds for a start, beside other work


def free_ports(count):
    """Different ports, below those that the system assigns to others while the server starts."""
    listeners = []
    while len(listeners) < count:
        try:
            listeners.append(socket.create_server(("127.0.0.1", random.randrange(10000, 32000))))
        except OSError:
            continue
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def make_certificates(directory):
    """A CA, and certificates of the server (for localhost), of a client, and of a client that the server does not know."""
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=directory)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test CA", "-days", "2")
    for name, subject in [("server", "/CN=localhost"), ("client", "/CN=client"), ("stranger", "/CN=stranger")]:
        with open(os.path.join(directory, name + ".ext"), "w") as file:
            file.write("subjectAltName=DNS:localhost\n")
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                "-extfile", f"{name}.ext", "-out", f"{name}.pem")


class Server:
    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="rxd-rabbitmq-")
        self.port, self.tls_port, self.epmd_port, self.node_port = free_ports(4)
        self.node = f"rxd{self.port}@localhost"
        self.process = self.epmd = None
        os.mkdir(self.path("home"))
        make_certificates(self.directory)
        self.write_files()
        self.environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": self.path("home"),
            "ERL_EPMD_PORT": str(self.epmd_port), "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.node, "RABBITMQ_DIST_PORT": str(self.node_port),
            "RABBITMQ_CONF_ENV_FILE": self.path("env.conf"), "RABBITMQ_CONFIG_FILE": self.path("rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": self.path("plugins"), "RABBITMQ_PID_FILE": self.path("pid"),
            "RABBITMQ_MNESIA_BASE": self.path("data"), "RABBITMQ_LOG_BASE": self.path("log"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none",
        }

    def path(self, name):
        return os.path.join(self.directory, name)

    def write_files(self):
        certificates = "\n".join(f"ssl_options.{key} = {self.path(name)}"
                                 for key, name in [("cacertfile", "ca.pem"), ("certfile", "server.pem"), ("keyfile", "server.key")])
        files = {
            "rabbitmq.conf": f"""listeners.tcp.1 = 127.0.0.1:{self.port}
listeners.ssl.1 = 127.0.0.1:{self.tls_port}
{certificates}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = false
ssl_cert_login_from = common_name
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
max_message_size = {BODY_MOST}
load_definitions = {self.path("definitions.json")}
log.file = false
log.console = true
log.console.level = warning
""",
            "plugins": "[rabbitmq_auth_mechanism_ssl].\n",
            "env.conf": "",
            "definitions.json": json.dumps({
                "vhosts": [{"name": "/"}, {"name": "other"}],
                "users": [{"name": name, "password": password, "tags": tags} for name, password, tags in
                          [("guest", "guest", "administrator"), ("me", PASSWORD, ""), ("limited", PASSWORD, ""), ("client", PASSWORD, "")]],
                "permissions": [{"user": user, "vhost": vhost, "configure": configure, "write": write, "read": ".*"}
                                for user, vhost, configure, write in
                                [("guest", "/", ".*", ".*"), ("guest", "other", ".*", ".*"), ("me", "/", ".*", ".*"),
                                 ("client", "/", ".*", ".*"), ("limited", "/", "", "^amq\\.topic$")]],
                "topic_permissions": [{"user": "limited", "vhost": "/", "exchange": "amq.topic", "write": "^allowed\\.", "read": ".*"}],
            }),
        }
        for name, text in files.items():
            with open(self.path(name), "w") as file:
                file.write(text)

    def start(self):
        """Starts it, the second time again with its data; returns when it is usable."""
        if self.epmd is None:
            self.epmd = subprocess.Popen(["epmd", "-port", str(self.epmd_port), "-address", "127.0.0.1"], stdin=subprocess.DEVNULL,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment)
            while not self.answers(self.epmd_port):
                time.sleep(0.02)
        if os.path.exists(self.path("pid")):
            os.unlink(self.path("pid"))
        with open(self.path("out"), "ab") as out:
            self.process = subprocess.Popen([PROGRAM], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.environment,
                                            cwd=self.directory)
        self.wait_for(self.greets, "a start")

    @staticmethod
    def answers(port):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            return False

    def greets(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                connection.sendall(b"AMQP\0\0\x09\x01")
                return connection.recv(1) == b"\x01"
        except OSError:
            return False

    def wait_for(self, condition, what):
        end = time.monotonic() + PATIENCE
        while not condition():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"waited for {what} of the server:\n{self.output()[-3000:]}")
            time.sleep(0.05)

    def output(self):
        with open(self.path("out"), errors="replace") as file:
            return file.read()

    def pid(self):
        """The process id of the virtual machine, which the script starts."""
        try:
            with open(self.path("pid")) as file:
                return int(file.read())
        except (OSError, ValueError):
            return None

    def kill(self, number=signal.SIGKILL):
        """Ends the virtual machine, and with it the script."""
        pid = self.pid()
        if pid is not None and self.process.poll() is None:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        elif self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)

    def control(self, *arguments):
        subprocess.run([CTL, "--node", self.node, *arguments], check=True, capture_output=True, env=self.environment, timeout=PATIENCE,
                       cwd=self.directory)

    def end(self):
        if self.process is not None:
            self.kill()
        if self.epmd is not None:
            self.epmd.kill()
            self.epmd.wait()
        shutil.rmtree(self.directory)

    def describe(self):
        return json.dumps({"port": self.port, "tls_port": self.tls_port, "directory": self.directory})


class Known:
    """A server started by somebody else."""

    def __init__(self, text):
        self.__dict__.update(json.loads(text))

    def path(self, name):
        return os.path.join(self.directory, name)


def main():
    server = Server()
    run = None

    def stop(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        server.start()
        run = subprocess.Popen(sys.argv[1:], env={**os.environ, "SERVER": server.describe()})
        return run.wait()
    finally:
        if run is not None and run.poll() is None:
            run.terminate()
            run.wait()
        server.end()


if __name__ == "__main__":
    sys.exit(main())
