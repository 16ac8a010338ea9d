#!/usr/bin/env python3
"""`penstock serve` as a browser and as others ask it: the token, the name of the host, what is simulated,
and that nothing else of this machine is read."""
import http.client
import json
import os
import pathlib
import signal
import subprocess
import tempfile
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

    def test_what_is_wrong_is_said_with_its_place(self):
        said, = serve.answer({"scenario": SMALL.replace("stages", "stagez")})["problems"]
        self.assertIn("did you mean 'stages'", said["rendered"])
        for asked in ({}, {"scenario": 1}, {"scenario": SMALL, "engine": "cloud"}):
            self.assertIn("problems", serve.answer(asked))


@unittest.skipUnless(BUILT, "the playground is not built")
class Served(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.process = subprocess.Popen([PROGRAM, "serve"], stdout=subprocess.PIPE, text=True)
        cls.url = urllib.parse.urlsplit(cls.process.stdout.readline().strip())

    @classmethod
    def tearDownClass(cls):
        cls.process.send_signal(signal.SIGINT)
        assert cls.process.wait(20) == 0
        cls.process.stdout.close()

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

    def test_nonsense(self):
        self.assertEqual(self.ask("POST", self.url.path + "simulate", "{")[0], 400)
        self.assertEqual(self.ask("POST", self.url.path + "simulate", "", **{"Content-Length": "99999999"})[0], 413)
        self.assertIn("problems", json.loads(self.ask("POST", self.url.path + "simulate", "[]")[1]))


if __name__ == "__main__":
    unittest.main()
