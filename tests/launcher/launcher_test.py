#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./penstock and ./check with fake tools: what they build, install, print and return, and when."""

import os
import pathlib
import re
import shutil
import signal
import statistics
import time
import unittest

from sandbox import Sandbox


class LauncherTest(unittest.TestCase):
    def setUp(self) -> None:
        self.box = Sandbox()
        self.addCleanup(self.box.close)
        signal.signal(signal.SIGALRM, self.fail_by_time)
        signal.alarm(100)
        self.addCleanup(signal.alarm, 0)

    def fail_by_time(self, *_) -> None:
        self.fail("it waits for something that does not come")

    def assert_builds(self, times: int) -> None:
        self.box.forget()
        result = self.box.run("again")
        self.assertEqual((result.stdout, result.returncode), ("again\n", 0), result.stderr)
        self.assertEqual(len(self.box.calls("ninja")), times, self.box.calls())


class Start(LauncherTest):
    def test_first_start_configures_builds_and_runs(self) -> None:
        result = self.box.run("simulate", "two words")
        self.assertEqual(result.stdout, "simulate\ntwo words\n")
        self.assertEqual(len(self.box.calls("meson setup")), 1)
        self.assertRegex(self.box.calls("ninja")[0], r"^ninja -C .*/a tree/build first$")

    def assert_each_builds(self, *commands: tuple[str, str]) -> None:
        """After a first table; "": nothing."""
        self.box.run("simulate")
        for command, parts in commands:
            self.box.forget()
            self.box.run(command)
            built = [call.split("/build ")[1] for call in self.box.calls("ninja")]
            self.assertEqual(built, [parts] if parts else [], command)

    def test_searches_and_sweeps_are_built_when_they_are_first_asked_for(self) -> None:
        self.assert_each_builds(("schedule", ""), ("sweep", "runtime"), ("plan", ""), ("compare", ""),
                                ("simulate", ""))

    def test_what_executes_is_built_when_it_is_first_asked_for(self) -> None:
        self.assert_each_builds(("replay", "first execution"), ("replay", ""), ("doctor", ""),
                                ("calibrate", "runtime execution"), ("train", ""), ("simulate", ""))

    def test_what_the_first_program_does_without_is_built_before_it_runs(self) -> None:
        source = pathlib.Path(__file__).parents[2] / "cli/not_in_first.cpp"
        missing = re.findall(r"^int run_(\w+)\(", source.read_text(), re.MULTILINE)
        self.assertGreaterEqual(len(missing), 5)
        for command in missing:
            with self.subTest(command=command):
                (self.box.tree / "cli/main.cpp").write_text(f"// before {command}\n")
                self.box.forget()
                self.box.run(command)
                self.assertRegex(self.box.calls("ninja")[0], "build runtime")

    def test_the_cuda_backend_is_left_out_where_there_is_no_driver(self) -> None:
        self.box.fake("ldconfig", "")
        self.box.run("simulate")
        expected = "auto" if os.path.exists("/proc/driver/nvidia/version") else "disabled"
        self.assertIn(f"-Dcuda={expected}", self.box.calls("meson setup")[0])

    def test_warm_start_calls_no_build_tool_and_says_nothing(self) -> None:
        self.box.run()
        self.box.forget()
        for tool in ("meson", "ninja", "apt-get", "pkg-config", "c++"):
            self.box.fake(tool, "exit 1")
        result = self.box.run("x")
        self.assertEqual((result.stdout, result.stderr, result.returncode), ("x\n", "", 0))
        self.assertEqual(self.box.calls(), [])

    def test_warm_overhead_is_measured(self) -> None:
        """Prints what a warm start adds; not an assertion, since clocks on busy machines vary."""
        self.box.run()
        def median_ms(command) -> float:
            times = []
            for _ in range(21):
                start = time.perf_counter()
                self.box.run(command=command)
                times.append(time.perf_counter() - start)
            return 1e3 * statistics.median(times)
        direct = median_ms(self.box.tree / "build/cli/penstock-first")
        print(f"a warm start adds {median_ms(None) - direct:.1f} ms to {direct:.1f} ms")

    def test_runs_in_the_directory_it_is_called_from(self) -> None:
        self.box.program("pwd -P")
        result = self.box.run(cwd=self.box.bin)
        self.assertEqual(result.stdout, f"{self.box.bin.resolve()}\n")

    def test_runs_through_symbolic_links(self) -> None:
        absolute, relative = self.box.bin / "penstock", self.box.top / "pen stock"
        absolute.symlink_to(self.box.tree / "penstock")
        relative.symlink_to("bin/penstock")
        for command in (absolute, relative):
            result = self.box.run("linked", command=command, cwd="/")
            self.assertEqual(result.stdout, "linked\n", result.stderr)
        self.assertEqual(len(self.box.calls("ninja")), 1)

    def test_standard_input_is_left_to_the_command(self) -> None:
        self.box.program("cat")
        for tool in ("meson", "ninja"):
            body = (self.box.bin / tool).read_text()
            (self.box.bin / tool).write_text(body + "cat >/dev/null\n")
        self.assertEqual(self.box.run(input="a scenario").stdout, "a scenario")

    def test_exit_status_signal_and_process_are_the_commands(self) -> None:
        self.box.program('echo $$; if [[ $1 == kill ]]; then kill -TERM $$; fi; exit 3')
        process = self.box.start()
        out, _ = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (3, f"{process.pid}\n"))
        self.assertEqual(self.box.run("kill").returncode, -signal.SIGTERM)


class Freshness(LauncherTest):
    def setUp(self) -> None:
        super().setUp()
        self.box.run()

    def write(self, name: str) -> None:
        path = self.box.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"// {name}\n")

    def test_a_changed_new_or_deleted_source_is_built_once(self) -> None:
        for name in ("cli/main.cpp", "cli/new.hpp", "newroom/meson.build", "meson_options.txt"):
            with self.subTest(written=name):
                self.write(name)
                self.assert_builds(1)
                self.assert_builds(0)
        (self.box.tree / "cli/new.hpp").unlink()
        self.assert_builds(1)

    def test_an_older_file_put_in_place_is_built(self) -> None:
        self.write("cli/main.cpp")
        os.utime(self.box.tree / "cli/main.cpp", (1, 1))
        self.assert_builds(1)

    def test_data_tests_and_outputs_are_not_built(self) -> None:
        for name in ("models/gpt.yaml", "scenarios/a.yaml", "tests/a_test.cpp", "docs/a.js",
                     "report.html", "trace.json", "build-sanitize/x.cpp", ".cache/x.cpp"):
            self.write(name)
        self.assert_builds(0)

    def test_a_lost_program_is_built(self) -> None:
        (self.box.tree / "build/cli/penstock-first").unlink()
        self.assert_builds(1)

    def test_a_moved_tree_is_configured_afresh(self) -> None:
        self.box.tree = self.box.tree.rename(self.box.top / "moved tree")
        self.box.fake("ninja", 'mkdir -p "$2/cli" && cp "{tree}/cli/program" "$2/cli/penstock-first"')
        self.assert_builds(1)
        self.assertEqual(len(self.box.calls("meson setup")), 1)

    def test_a_configured_tree_is_not_configured_again(self) -> None:
        self.write("cli/main.cpp")
        self.assert_builds(1)
        self.assertEqual(self.box.calls("meson"), [])


class Failures(LauncherTest):
    def test_a_failed_build_shows_the_compilers_words_and_runs_nothing(self) -> None:
        self.box.run()
        self.box.fake("ninja", 'echo "[1/2] compiling"; echo "main.cpp:1: error: no"; exit 1')
        (self.box.tree / "cli/main.cpp").write_text("broken\n")
        for _ in range(2):
            result = self.box.run("x")
            self.assertEqual((result.stdout, result.returncode), ("", 1))
            self.assertIn("main.cpp:1: error: no", result.stderr)
            self.assertNotIn("[1/2]", result.stderr)

    def test_a_failed_configuration_shows_mesons_words(self) -> None:
        self.box.fake("meson", 'echo "meson.build:1: ERROR: no simgrid"; exit 1')
        result = self.box.run("x")
        self.assertEqual((result.stdout, result.returncode), ("", 1))
        self.assertIn("ERROR: no simgrid", result.stderr)

    def test_where_nothing_can_be_written_it_says_so_in_its_own_words(self) -> None:
        self.box.run("x")
        (self.box.tree / "cli/main.cpp").write_text("changed\n")
        lock = self.box.tree / "build/.lock"
        lock.unlink()
        lock.mkdir()  # also root cannot write to it
        result = self.box.run("x")
        self.assertEqual((result.stdout, result.returncode), ("", 1))
        self.assertRegex(result.stderr, r"^cannot write to .*/build, where what changed is built; .*"
                                        r"build/cli/penstock-first\n$")

    def test_an_interrupted_configuration_is_done_again(self) -> None:
        (self.box.tree / "build/meson-private").mkdir(parents=True)
        self.box.fake("meson", '[[ ! -d "$2/meson-private" ]] && touch "$2/build.ninja"')
        self.assertEqual(self.box.run("x").stdout, "x\n")


class Concurrency(LauncherTest):
    def test_a_second_start_waits_for_the_first_and_builds_nothing(self) -> None:
        gate, built = self.box.top / "gate", (self.box.bin / "ninja").read_text()
        os.mkfifo(gate)
        self.box.fake("ninja", f'read -r _ <"{gate}"\n{built}')
        first = self.box.start("first")
        # Once the first configures it holds the lock; it cannot finish before the gate opens.
        self.assertEqual(first.stderr.readline(), "configuring penstock\n")
        second = self.box.start("second")
        self.assertIn("waiting", second.stderr.readline())
        gate.write_text("go\n")
        for process, word in ((first, "first\n"), (second, "second\n")):
            out, err = process.communicate(timeout=60)
            self.assertEqual((out, process.returncode), (word, 0), err)
        self.assertEqual(len(self.box.calls("meson")), 1)

    def test_many_starts_at_once_build_once(self) -> None:
        processes = [self.box.start(str(i)) for i in range(6)]
        outputs = [process.communicate(timeout=60)[0] for process in processes]
        self.assertEqual(outputs, [f"{i}\n" for i in range(6)])
        self.assertEqual(len(self.box.calls("meson")), 1)
        self.assertEqual(len(self.box.calls("ninja")), 1)

    def test_a_service_started_by_a_package_does_not_keep_the_lock(self) -> None:
        (self.box.missing / "simgrid").touch()
        self.box.fake("apt-get", 'sleep 600 & echo $! >"{top}/service"; rm "{missing}/simgrid"')
        self.box.run()
        service = int((self.box.top / "service").read_text())
        self.addCleanup(os.kill, service, signal.SIGKILL)
        locked = shutil.which("flock")
        self.assertEqual(
            self.box.run("-n", self.box.tree / "build/.lock", "true", command=locked,
                         env=dict(os.environ)).returncode, 0)


class Installing(LauncherTest):
    def test_nothing_is_installed_when_all_is_there(self) -> None:
        self.box.run()
        self.assertEqual(self.box.calls("apt-get"), [])

    def test_only_the_missing_library_and_tool_are_installed_and_named(self) -> None:
        (self.box.missing / "simgrid").touch()
        self.box.offer("ninja-build", "ninja")
        result = self.box.run("x")
        self.assertEqual(result.stdout, "x\n", result.stderr)
        self.assertEqual(self.box.requested_packages(), {"libsimgrid-dev", "ninja-build"})
        self.assertIn("installing: ninja-build (build tool), libsimgrid-dev (SimGrid)\n",
                      result.stderr)

    def test_package_lists_are_updated_only_after_a_failed_attempt(self) -> None:
        (self.box.missing / "simgrid").touch()
        self.box.fake("apt-get", 'case "$*" in *update*) touch "{top}/updated" ;; esac\n'
                      'echo chatter; [[ -e "{top}/updated" ]]')
        result = self.box.run("x")
        self.assertEqual(result.stdout, "x\n")
        self.assertNotIn("chatter", result.stderr)
        self.assertEqual(["update" in call for call in self.box.calls("apt-get")],
                         [False, True, False])

    def test_a_failed_installation_shows_its_output_and_the_command(self) -> None:
        (self.box.missing / "simgrid").touch()
        self.box.fake("apt-get", 'echo "E: no such package"; exit 100')
        result = self.box.run("x")
        self.assertEqual((result.stdout, result.returncode), ("", 1))
        self.assertIn("E: no such package", result.stderr)
        self.assertIn("apt-get install -y --no-install-recommends libsimgrid-dev\n", result.stderr)

    def test_without_a_package_manager_the_command_is_printed(self) -> None:
        (self.box.missing / "fmt").touch()
        (self.box.bin / "apt-get").unlink()
        result = self.box.run("x")
        self.assertEqual((result.stdout, result.returncode), ("", 1))
        self.assertIn("apt-get install -y --no-install-recommends libfmt-dev\n", result.stderr)


class Python(LauncherTest):
    """`./penstock python`: the package is built when it is first asked for."""

    def assert_starts_python(self) -> None:
        result = self.box.run("python", "-c", "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:])", "two words")
        self.assertEqual((result.stdout, result.returncode),
                         (f"{self.box.tree.resolve()}/build/python ['two words']\n", 0), result.stderr)

    def test_it_is_built_once_and_python_started(self) -> None:
        self.assert_starts_python()
        self.assertRegex(self.box.calls("ninja")[0], r"build runtime python$")
        self.box.forget()
        self.assert_starts_python()
        self.assertEqual(self.box.calls(), [])

    def test_what_it_needs_is_installed_and_the_build_configured_again(self) -> None:
        (self.box.missing / "pybind11").touch()
        self.box.run("simulate")
        self.assertEqual(self.box.requested_packages(), set())
        self.box.fake("apt-get", 'rm "{missing}/pybind11"')
        self.assert_starts_python()
        self.assertEqual(self.box.requested_packages(), {"pybind11-dev"})
        self.assertEqual(len(self.box.calls("meson setup --reconfigure")), 1)

    def test_a_build_that_still_has_no_package_says_why(self) -> None:
        self.box.fake("meson", 'mkdir -p "{tree}/build" && touch "{tree}/build/build.ninja"')
        result = self.box.run("python")
        self.assertEqual((result.stdout, result.returncode), ("", 1))
        self.assertRegex(result.stderr, r"cannot be built .*configure\.log")

    def test_a_changed_module_of_the_package_is_built(self) -> None:
        self.assert_starts_python()
        module = self.box.tree / "python/penstock/results.py"
        module.parent.mkdir(parents=True)
        module.write_text("# results\n")
        self.box.forget()
        self.assert_starts_python()
        self.assertEqual(len(self.box.calls("ninja")), 1)

    def test_the_users_own_path_is_kept(self) -> None:
        result = self.box.run("python", "-c", "import os; print(os.environ['PYTHONPATH'])",
                              env=self.box.environment() | {"PYTHONPATH": "/mine"})
        self.assertEqual(result.stdout, f"{self.box.tree.resolve()}/build/python:/mine\n", result.stderr)


class Check(LauncherTest):
    def check(self, *arguments):
        return self.box.run(*arguments, command=self.box.tree / "check")

    def test_node_and_npm_are_installed_one_without_the_other(self) -> None:
        for tool, package, other in (("npm", "npm", "nodejs"), ("node", "nodejs", "npm")):
            self.box.forget()
            self.box.offer(package, tool)
            self.check()
            self.assertIn(package, self.box.requested_packages())
            self.assertNotIn(other, self.box.requested_packages())

    def test_without_a_browser_nothing_is_installed_or_run_for_it(self) -> None:
        (self.box.bin / "npm").unlink()
        self.check("--no-browser")
        self.assertNotIn("npm", self.box.requested_packages())
        self.assertRegex(self.box.calls("meson test")[0], "--no-suite browser( |$)")

    def test_a_check_has_one_round_without_what_takes_long(self) -> None:
        self.check()
        self.assertEqual(len(self.box.calls("ninja")), 1)
        (tests,) = self.box.calls("meson test")
        for suite in ("launcher", "long", "network", "package", "published"):
            self.assertIn(f"--no-suite={suite}", tests)
        self.assertNotIn("clang-tidy-16", self.box.requested_packages())

    def test_all_leaves_out_of_the_first_round_only_what_has_its_own_stage(self) -> None:
        self.check("--all")
        tests = self.box.calls("meson test")[0]
        self.assertEqual(re.findall(r"--no-suite[ =](\S+)", tests), ["additions"])
        self.assertIn("clang-tidy-16", self.box.requested_packages())

    def test_the_second_round_of_all_has_sanitizers(self) -> None:
        self.check("--all")
        self.assertIn("-Db_sanitize=address,undefined", " ".join(self.box.calls("meson setup")))
        self.assertIn("-fsanitize-coverage=", " ".join(self.box.calls("meson setup")))
        self.assertIn("--suite rooms --suite commands --suite execution --suite fuzz",
                      self.box.calls("meson test")[1])

    def test_the_third_round_of_all_has_the_thread_sanitizer_for_what_executes(self) -> None:
        self.check("--all")
        self.assertIn("-Db_sanitize=thread", self.box.calls("meson setup")[2])
        self.assertRegex(self.box.calls("ninja")[2], "build-thread thread_tests$")
        self.assertIn("--suite threads", self.box.calls("meson test")[2])

    def test_a_stage_of_all_runs_by_itself(self) -> None:
        for stage, suites in (("tests", None), ("sanitizers", "--suite rooms --suite commands"),
                              ("threads", "--suite threads")):
            self.box.forget()
            self.check("--stage", stage)
            (tests,) = self.box.calls("meson test")
            self.assertEqual(len(self.box.calls("ninja")), 1, stage)
            self.assertNotIn("--no-suite=published", tests, stage)
            self.assertIn(suites or "meson test", tests, stage)

    def test_stages_run_in_their_order_and_end_with_one_count(self) -> None:
        result = self.check("--stage", "threads", "--stage", "sources", "--stage", "sanitizers")
        suites = [call.partition("--suite ")[2].split()[0] for call in self.box.calls("meson test")]
        self.assertEqual(suites, ["rooms", "threads"])
        self.assertEqual(result.stdout.splitlines()[-1], "0 passed, 2 failed, 0 skipped")

    def test_a_stage_that_there_is_not_is_a_usage_error_that_names_those_there_are(self) -> None:
        for words in (["--stage", "thread"], ["--stage"]):
            result = self.check(*words)
            self.assertEqual((result.stdout, result.returncode), ("", 2))
            self.assertIn("sources tests sanitizers threads", result.stderr)

    def test_random_cases_are_all_tried_in_all_alone(self) -> None:
        self.box.fake("meson", (self.box.bin / "meson").read_text() +
                      'echo "thorough=$PENSTOCK_THOROUGH" >>"{top}/log"')
        self.check()
        self.assertIn("thorough=", self.box.calls("thorough"))
        self.assertNotIn("thorough=1", self.box.calls("thorough"))
        self.box.forget()
        self.check("--all")
        self.assertIn("thorough=1", self.box.calls("thorough"))

    def test_a_tree_that_was_run_before_is_configured_again_with_the_tests_once(self) -> None:
        self.box.run()
        self.box.forget()
        for _ in range(2):
            self.check()
        self.assertEqual(len(self.box.calls("meson setup --reconfigure")), 1)
        self.assertEqual(len(self.box.calls("meson setup")), 1)

    def test_after_a_check_penstock_is_warm(self) -> None:
        self.check()
        self.assert_builds(0)

    def test_a_failed_build_still_ends_with_the_count(self) -> None:
        self.box.fake("ninja", "exit 1")
        result = self.check()
        self.assertEqual(result.stdout.splitlines()[-1], "0 passed, 1 failed, 0 skipped")
        self.assertEqual(result.returncode, 1)

    def test_tests_that_leave_no_log_have_failed(self) -> None:
        result = self.check()
        self.assertEqual(result.stdout.splitlines()[-1], "0 passed, 1 failed, 0 skipped")
        self.assertEqual(result.returncode, 1)

    def test_tests_are_told_where_shared_data_is(self) -> None:
        self.box.fake("meson", (self.box.bin / "meson").read_text() +
                      'echo "shared=$PENSTOCK_SHARED" >>"{top}/log"')
        self.check()
        self.assertIn(f"shared={self.box.top.resolve()}/shared", self.box.calls("shared"))

    def test_an_unknown_option_is_a_usage_error(self) -> None:
        result = self.check("--fast")
        self.assertEqual((result.stdout, result.returncode), ("", 2))
        self.assertIn("--fast", result.stderr)


class RealTools(LauncherTest):
    """Meson, ninja and the compiler of this machine on a program of one line."""

    def setUp(self) -> None:
        super().setUp()
        (self.box.tree / "meson.build").write_text(
            "project('penstock', 'cpp')\nsubdir('cli')\n")
        (self.box.tree / "meson_options.txt").write_text("option('cuda', type: 'feature')\n")
        (self.box.tree / "cli/meson.build").write_text(
            "alias_target('first', executable('penstock-first', 'main.cpp'))\n")
        for tool in ("meson", "ninja", "c++"):
            (self.box.bin / tool).unlink()
        self.path = self.box.environment() | {"PATH": f"{self.box.bin}:{os.environ['PATH']}"}

    def test_builds_runs_and_reports_a_compile_error(self) -> None:
        main = self.box.tree / "cli/main.cpp"
        main.write_text("int main() { return 5; }\n")
        result = self.box.run(env=self.path)
        self.assertEqual((result.stdout, result.returncode), ("", 5), result.stderr)
        main.write_text("int main() { return five; }\n")
        result = self.box.run(env=self.path)
        self.assertEqual((result.stdout, result.returncode), ("", 1))
        self.assertIn("five", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
