#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`penstock serve` as a browser and as others ask it: the token, the name of the host, what is simulated,
and that nothing else of this machine is read."""
import http.client
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest
import urllib.parse

from needs import need

need("numpy")

import penstock  # noqa: E402
from penstock import serve  # noqa: E402

PROGRAM = os.environ["PENSTOCK_BINARY"]
SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
SMALL = (SOURCE / "scenarios/small-1f1b.yaml").read_text()
BUILT = serve._PAGES[0].exists()


class Answers(unittest.TestCase):
    def test_are_the_results(self):
        for engine in ("exact", "simgrid"):
            said = serve.answer({"scenario": SMALL, "engine": engine})["result"]
            self.assertEqual(said["makespan_s"], penstock.simulate("small-1f1b", engine=engine).makespan_s)

    def test_shipped_models_and_clusters_are_there(self):
        text = (SOURCE / "scenarios/gpt-2.2b-2bw.yaml").read_text()
        self.assertTrue(serve.answer({"scenario": text})["result"]["feasible"])

    def test_no_other_file_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "secret.yaml")
            path.write_text("forward: 1 s\nbackward: 2 s\nsecret: 4711\n")
            for line in (f"model: {path}\n", f"schedule: {path}\n", "model: /etc/passwd\n", f"cluster: {{base: {path}}}\n"):
                key = line.split(":")[0]
                text = "".join(row + "\n" for row in SMALL.splitlines() if not row.startswith(key + ":")) + line
                said = serve.answer({"scenario": text})
                self.assertIn("problems", said, line)
                self.assertNotIn("4711", json.dumps(said))
                self.assertNotIn("root:", json.dumps(said))

    def test_no_file_of_this_machine_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("secret-plan.yaml", "secret-plan.csv", "secret-plan.json", "secret-plan.txt"):
                pathlib.Path(folder, name).write_text("{}")
            pathlib.Path(folder, "sub.yaml").mkdir()
            before = os.getcwd()
            os.chdir(folder)
            self.addCleanup(os.chdir, before)
            for prefix in ("", "./", folder + "/"):
                for key in ("model", "cluster", "schedule", "stack", "training.data"):
                    for name in ("secret-plam.yaml", "secret-plam.csv", "secret-plam.txt", "sub.yaml", "secret-plam.json"):
                        text = SMALL + (f"training: {{data: {prefix}{name}}}\n" if key == "training.data" else "")
                        text = "".join(row + "\n" for row in text.splitlines() if not row.startswith(key + ":"))
                        text += "" if key == "training.data" else f"{key}: {prefix}{name}\n"
                        for wanted in (text, text.replace(f"{key}: {prefix}{name}", f"{key}: {{base: {prefix}{name}}}")):
                            said = json.dumps(serve.answer({"scenario": wanted}))
                            self.assertNotIn("secret-plan", said, wanted)
                            self.assertNotIn("directory", said, wanted)

    def test_what_is_wrong_is_said_with_its_place(self):
        said, = serve.answer({"scenario": SMALL.replace("stages", "stagez")})["problems"]
        self.assertIn("did you mean 'stages'", said["rendered"])
        for asked in ({}, {"scenario": 1}, {"scenario": SMALL, "engine": "cloud"}):
            self.assertIn("problems", serve.answer(asked))


@unittest.skipUnless(BUILT, "the playground is not built")
class Served(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.process = subprocess.Popen([PROGRAM, "serve"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        cls.url = urllib.parse.urlsplit(cls.process.stdout.readline().strip())

    @classmethod
    def tearDownClass(cls):
        cls.process.send_signal(signal.SIGINT)
        _, said = cls.process.communicate(timeout=60)
        assert (cls.process.returncode, said) == (0, ""), said  # whatever was asked

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=60)
        self.addCleanup(connection.close)
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()

    def test_only_the_loopback(self):
        self.assertEqual(self.url.hostname, "127.0.0.1")

    def test_page(self):
        status, text = self.ask("GET", self.url.path)
        self.assertEqual(status, 200)
        self.assertIn(b'<meta name="penstock-engine" content="simulate">', text)

    def test_without_the_token_there_is_nothing(self):
        for path in ("/", "/simulate", "/" + "x" * 32 + "/", self.url.path + "../../etc/passwd", self.url.path[:-2] + "/"):
            self.assertEqual(self.ask("GET", path)[0], 404, path)
            self.assertEqual(self.ask("POST", path, "{}")[0], 404, path)

    def test_another_name_of_this_host_is_refused(self):
        self.assertEqual(self.ask("GET", self.url.path, Host="evil.example")[0], 403)

    def test_simulates(self):
        status, text = self.ask("POST", self.url.path + "simulate", json.dumps({"scenario": SMALL, "engine": "simgrid"}))
        self.assertEqual((status, json.loads(text)["result"]["makespan_s"]), (200, 41.0))

    def raw(self, *headers, body=b"", answered=True):
        """Of bytes as they stand: the status that comes back."""
        with socket.create_connection((self.url.hostname, self.url.port), timeout=60) as peer:
            lines = [f"POST {self.url.path}simulate HTTP/1.1", f"Host: {self.url.netloc}", *headers]
            peer.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
            if not answered:
                return None
            peer.shutdown(socket.SHUT_WR)
            return int(peer.makefile("rb").readline().split()[1])

    def test_odd_lengths(self):
        for length in ("-1", "+5", "5.0", "0x5", "five", "", " ", "5 5", "5,5", "\xb2", "\xb25", "1e3", "NaN", "_5", "1_0"):
            self.assertEqual(self.raw(f"Content-Length: {length}", body=b"[]xyz"), 400, length)
        self.assertEqual(self.raw(body=b"[]"), 400)
        self.assertEqual(self.raw("Transfer-Encoding: chunked", body=b"2\r\n[]\r\n0\r\n\r\n"), 400)
        self.assertEqual(self.raw("Content-Length: 2", "Content-Length: 2", body=b"[]"), 400)
        self.assertEqual(self.raw("Content-Length: 2", "Content-Length: 3", body=b"[]x"), 400)
        for length in ("1048577", "9" * 30, "9" * 5000):
            self.assertEqual(self.raw(f"Content-Length: {length}"), 413)
        self.assertEqual(self.raw("Content-Length: 10", body=b"[]"), 400)  # closed before it was whole
        self.assertEqual(self.raw("Content-Length: 002", body=b"[]"), 200)

    def test_bodies_that_are_no_json(self):
        half, scenario = '"\\ud83d"', json.dumps(SMALL)
        for body in (b"", b"{", b"\xff\xfe", b"\xed\xa0\x80", "[".encode() * 100_000, b'{"a":' * 100_000, b"[" * 400_000 + b"]" * 400_000,
                     f'{{"scenario": {half}}}'.encode(), f'{{{half}: 1}}'.encode(), f'{{"scenario": {scenario}, "x": [{half}]}}'.encode(),
                     f'{{"scenario": {scenario}, "engine": {half}}}'.encode(), b"1" * 5000, "{}".encode("utf-16")):
            self.assertEqual(self.ask("POST", self.url.path + "simulate", body)[0], 400, body[:60])
        for body in (b"[" * 50 + b"]" * 50, b"null", b'"x"', b'{"scenario": "[[[[[["}', b'{"scenario": "\\u0000"}', b'{"scenario": ["x"]}',
                     json.dumps({"scenario": "- " * 100_000}).encode(), json.dumps({"scenario": SMALL, "engine": []}).encode()):
            self.assertEqual(self.ask("POST", self.url.path + "simulate", body)[0], 200, body[:60])

    def test_nonsense(self):
        self.assertEqual(self.ask("POST", self.url.path + "simulate", "{")[0], 400)
        self.assertEqual(self.ask("POST", self.url.path + "simulate", "", **{"Content-Length": "99999999"})[0], 413)
        self.assertIn("problems", json.loads(self.ask("POST", self.url.path + "simulate", "[]")[1]))

    def test_peers_that_close_early_are_no_news(self):
        body = json.dumps({"scenario": SMALL, "engine": "exact"}).encode()
        for part in (body, body[:10], b""):
            for _ in range(5):
                with socket.create_connection((self.url.hostname, self.url.port)) as peer:
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
                    peer.sendall(f"POST {self.url.path}simulate HTTP/1.1\r\nHost: {self.url.netloc}\r\n"
                                 f"Content-Length: {len(body)}\r\n\r\n".encode() + part)
        with socket.create_connection((self.url.hostname, self.url.port)) as peer:
            peer.sendall(b"GET ")
        self.test_simulates()  # and nothing on standard error, at the end


@unittest.skipUnless(BUILT, "the playground is not built")
class Ended(unittest.TestCase):
    def test_ctrl_c_during_a_request(self):
        slow = SMALL.replace("microbatches: 8", "microbatches: 3000000")
        self.assertNotEqual(slow, SMALL)
        for engine in ("exact", "simgrid"):
            process = subprocess.Popen([PROGRAM, "serve"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            url = urllib.parse.urlsplit(process.stdout.readline().strip())
            peers = []
            for _ in range(3):
                peer = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
                peer.request("POST", url.path + "simulate", json.dumps({"scenario": slow, "engine": engine}))
                peers.append(peer)
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=20)
            self.assertEqual((process.returncode, said), (0, ""))
            for peer in peers:
                peer.close()


if __name__ == "__main__":
    unittest.main()
