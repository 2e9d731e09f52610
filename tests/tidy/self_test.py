"""The tidy test tested: every rule must find its bad tree and leave the good one alone.

    python3 tests/tidy/self_test.py [--compiler g++]
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import headers
import house
import scan
import tidy

COMPILER = "g++"
HERE = pathlib.Path(__file__).resolve().parent
GOOD_HEADER = "#pragma once\n#include <cstdint>\n\nnamespace runnel {\nint64_t One();\n}\n"
LONG_BODY = "  Call();\n" * house.MAX_FUNCTION_LINES


def grow_tree(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def findings_of(files):
    """The findings in a tree of these files, each as one line."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        grow_tree(root, files)
        return [str(finding) for finding in tidy.check(root)[1]]


def includers(path):
    """A file that includes the header `path`, which would be dead without it."""
    return {path[:-2] + "_user.cc": f'#include "{path}"\n'} if path.endswith(".h") else {}


class Scanner(unittest.TestCase):
    # Source, and (first line, last line, name) of every function in it.
    SNIPPETS = (
        ("int f() { return 1; }", [(1, 1, "f")]),
        ("int f();\nint g(int a = 3) {\n  if (a) {\n  }\n}\n", [(2, 5, "g")]),
        ("namespace a::b {\nnamespace {\nvoid f() {\n}\n}\n}\n", [(3, 4, "f")]),
        ('extern "C" {\nvoid f() {\n}\n}\n', [(2, 3, "f")]),
        ("struct S {\n  int x = 0;\n  S() : x{1}, y_(2) {\n  }\n  int y_;\n};\n", [(3, 4, "S")]),
        ("S::S(int a)\n    : x_{a},\n      y_{} {\n}\n", [(1, 4, "S::S")]),
        ("class A : public B<int> {\n public:\n  void f() const override {\n  }\n};\n",
         [(3, 4, "f")]),
        ("template <class T, int N = 3>\nclass A {\n};\ntemplate <class T>\nT f(T x) {\n}\n",
         [(4, 6, "f")]),
        ("const int k[] = {1, 2};\nconst S s{3};\nvoid f() {}\n", [(3, 3, "f")]),
        ("const T t[] = {\n  {1, [] { return 2; }},\n};\n", []),
        ("const auto k = [](int a) {\n  return a;\n};\n", [(1, 3, "")]),
        ("void f() {\n  auto g = [] {\n  };\n  struct L { void m() {} };\n}\n", [(1, 5, "f")]),
        ("void f(S s = {}, int b = 2) {\n}\n", [(1, 2, "f")]),
        ("bool operator==(A a, A b) {\n}\nint A::operator()(int b) {\n}\n",
         [(1, 2, "operator=="), (3, 4, "")]),
        ("auto f() -> decltype(g()) {\n}\n", [(1, 2, "f")]),
        ("struct alignas(64) S {\n  void f() {}\n};\n", [(2, 2, "f")]),
        ('__attribute__((target("avx2"))) void f() {\n}\n', [(1, 2, "")]),
        ('void f() {\n  g("}", \'{\', R"x(}})x");  // }\n  /* } */\n}\n', [(1, 4, "f")]),
        ("#define M(x) { x\nvoid f() {\n  long a = 1'000'000;\n}\n", [(2, 4, "f")]),
        ("enum class E : int { kA, kB };\nTEST(Suite, Name) {\n}\n", [(2, 3, "TEST")]),
    )

    def test_functions(self):
        for source, expected in self.SNIPPETS:
            with self.subTest(source=source):
                found = scan.cpp_functions(source)
                self.assertEqual([f[:2] for f in found], [e[:2] for e in expected])
                for (_, _, name), (_, _, wanted) in zip(found, expected):
                    self.assertTrue(wanted in ("", name), f"{name} is not {wanted}")

    def test_unbalanced_is_an_error(self):
        for source in ("void f() {", "}", "void f() {\n#if A\n  {\n#else\n  {\n#endif\n}}\n"):
            with self.subTest(source=source), self.assertRaises(ValueError):
                scan.cpp_functions(source)

    def test_includes_skip_comments(self):
        source = '// #include "a.h"\n/*\n#include "b.h"\n*/\n#include "c.h"\n# include <d>\n'
        self.assertEqual(scan.includes(source), [(5, True, "c.h"), (6, False, "d")])

    def test_shell_and_python_functions(self):
        self.assertEqual(scan.shell_functions("a=1\nf() {\n  x\n}\n"), [(2, 4, "f")])
        self.assertEqual(scan.python_functions("x = 1\ndef f():\n  pass\n"), [(2, 3, "f")])


class Rules(unittest.TestCase):
    # A file, its text, and what the one finding must say.
    BAD = (
        ("worker/a.cc", '#include "central/a.h"\n', "worker/a.cc:1: forbidden arrow"),
        ("central/a.cc", '\n#include "worker/a.h"\n', "central/a.cc:2: forbidden arrow"),
        ("central/a.cc", '#include "kernels/ir/program.h"\n', "forbidden arrow"),
        ("kernels/a.cc", '#include "compress/codec.h"\n', "forbidden arrow"),
        ("compress/a.cc", '#include "kernels/ir/program.h"\n', "forbidden arrow"),
        ("kernels/a.cc", '#include "proto/transport/link/frame.h"\n', "forbidden arrow"),
        ("partition/a.cc", '#include "predictor/a.h"\n', "forbidden arrow"),
        ("predictor/a.cc", '#include "partition/policy.h"\n', "forbidden arrow"),
        ("proto/base/a.cc", '#include "proto/transport/link/frame.h"\n', "forbidden arrow"),
        ("proto/transport/a.cc", '#include "partition/policy.h"\n', "forbidden arrow"),
        ("proto/transport/link/a.cc", '#include "proto/transport/control/control.h"\n',
         "forbidden arrow"),
        ("proto/transport/grpc/a.cc", '#include "tests/support/in_process/loopback.h"\n',
         "forbidden arrow"),
        ("predictor/run/a.cc", '#include "predictor/judge/cross_validate.h"\n', "forbidden arrow"),
        ("kernels/ir/recipes/a.cc", '#include "kernels/backends/cpu/call.h"\n', "forbidden arrow"),
        ("central/planning/a.cc", '#include "central/run/coordinator.h"\n', "forbidden arrow"),
        ("central/planning/a.cc", '#include "central/data/dataset.h"\n', "forbidden arrow"),
        ("central/display/a.cc", '#include "central/planning/planner.h"\n', "forbidden arrow"),
        ("central/records/a.cc", '#include "central/display/progress.h"\n', "forbidden arrow"),
        ("central/settings/a.cc", '#include "central/records/journal.h"\n', "forbidden arrow"),
        ("central/run/a.cc", '#include "central/cli/subcommands/subcommand.h"\n', "forbidden arrow"),
        ("central/cli/a.cc", '#include "central/reports/codec_report.h"\n', "forbidden arrow"),
        ("worker/a.cc", '#include "compress/mbq/mbq.h"\n', "not a public header of compress"),
        ("central/a.cc", '#include "proto/transport/link/pacer.h"\n', "not a public header of proto"),
        ("worker/a.cc", '#include "tests/a.h"\n', "forbidden arrow"),
        ("worker/a.cc", '#include "worker/main.cc"\n', "includes the main"),
        ("worker/a.cc", '#include "proto/control.pb.h"\n', "generated messages"),
        ("central/a.cc", "#include <google/protobuf/message.h>\n", "generated messages"),
        ("central/records/journal.cc", '#include "proto/a.grpc.pb.h"\n', "gRPC stays"),
        ("proto/transport/link/a.cc", "#include <grpcpp/grpcpp.h>\n", "gRPC stays"),
        ("kernels/backends/torch/a.h", "#pragma once\n#include <ATen/ATen.h>\n", "LibTorch stays"),
        ("predictor/networks/mlp.cc", "#include <torch/torch.h>\n", "LibTorch stays"),
        ("central/a.cc", "#include <CLI/CLI.hpp>\n", "CLI11 stays"),
        ("proto/transport/a.cc", "#include <spdlog/spdlog.h>\n", "log is an interface"),
        ("worker/a.cc", '#include "absl/synchronization/mutex.h"\n', "absl::Mutex"),
        ("worker/a.cc", "#include <glog/logging.h>\n", "one logging interface"),
        ("kernels/a.cc", '#include "proto/base/log.h"\n', "never logs"),
        ("worker/a.h", "#include <cstdint>\n", "without #pragma once"),
        ("worker/a.h", "#pragma once\nusing namespace std;\n", "a.h:2: using namespace"),
        ("worker/a.cc", "int a;\n" * (house.MAX_FILE_LINES + 1), "file of"),
        ("proto/a.proto", "//\n" * (house.MAX_FILE_LINES + 1), "file of"),
        ("worker/a.cc", "\nvoid f() {\n" + LONG_BODY + "}\n", "a.cc:2: function f of"),
        ("tests/a.py", "def f():\n" + "  call()\n" * house.MAX_FUNCTION_LINES, "function f of"),
        ("deploy/a.sh", "f() {\n" + "  call\n" * house.MAX_FUNCTION_LINES + "}\n", "function f of"),
        ("worker/a.cc", "void f() {\n", "cannot be measured"),
        ("README.md", house.LEFT_BEHIND[0] + ": write\n", "left behind"),
        ("worker/a.cc", "int a;  // " + house.LEFT_BEHIND[1] + "\n", "a.cc:1:"),
        ("worker/a.cc", "int a; \n", "trailing white space"),
        ("worker/a.cc", "\tint a;\n", "tab"),
        (".ci/full", "x=1\nRUNNEL_ROUNDS=1 ctest\n", ".ci/full:2: sets RUNNEL_ROUNDS, which no other"),
        ("notes/a.md", "words\n", "the top level is fixed"),
    )
    GOOD = {
        "CMakeLists.txt": "project(x)\n",
        "proto/base/a.h": GOOD_HEADER,
        "proto/transport/grpc_link.cc": '#include <grpcpp/grpcpp.h>\n#include "proto/a.grpc.pb.h"\n',
        "proto/transport/convert.cc": '#include "proto/a.pb.h"\n#include "proto/base/a.h"\n',
        "kernels/backends/torch/a.cc": "#include <ATen/ATen.h>\n",
        "predictor/train/train_torch.cc": '#include <torch/torch.h>\n#include "partition/cost_model.h"\n',
        "central/a.cc": '#include "partition/policy.h"\n#include "proto/transport/link/frame.h"\n',
        "central/records/journal_file.cc": '#include "proto/journal.pb.h"\n',
        "central/cli/main.cc": '#include <CLI/CLI.hpp>\n#include "kernels/ir/program.h"\n',
        "worker/a.cc": '#include "kernels/ir/compiler.h"\n#include "compress/codec.h"\n',
        "worker/grpc_control.cc": "#include <grpcpp/grpcpp.h>\n",
        "tests/a.cc": '#include "central/a.h"\n#include "worker/a.h"\n#include <torch/torch.h>\n',
        "deploy/a.sh": 'RUNNEL_ROUNDS="${RUNNEL_ROUNDS:-9}" cmake -DRUNNEL_TESTS=OFF\n',
        "tests/b.cc": 'const char* rounds = getenv("RUNNEL_ROUNDS");\n',
        "tests/golden/a.json": "{}\t \n",
        "build/dev/a.cc": "\t" + house.LEFT_BEHIND[0] + "\n",
    }

    def test_good_tree(self):
        self.assertEqual(findings_of(self.GOOD), [])

    def test_bad_trees(self):
        for path, text, said in self.BAD:
            with self.subTest(path=path, said=said):
                found = findings_of({path: text} | includers(path))
                self.assertEqual(len(found), 1, found)
                self.assertIn(said, found[0])
                self.assertRegex(found[0], r"^[^:]+:\d+: .+; fix: .+$")

    def test_relative_include(self):
        found = findings_of({"worker/a.cc": '#include "a.h"\n', "worker/a.h": GOOD_HEADER}
                            | includers("worker/a.h"))
        self.assertEqual(len(found), 1, found)
        self.assertIn("relative include", found[0])

    def test_dead_files(self):
        tree = {"worker/a.h": GOOD_HEADER, "worker/a.cc": '#include "worker/a.h"\n',
                "worker/b.h": '#pragma once\n#include "worker/a.h"\n',
                "worker/b.cc": '#include "worker/b.h"\n',
                "tests/worker/a_test.cc": '#include "worker/b.h"\n'}
        found = findings_of(tree)
        self.assertEqual([f.split(":")[0] for f in found], ["worker/a.h", "worker/b.h"])
        self.assertIn("no file outside tests", found[0])
        self.assertEqual(findings_of(tree | {"worker/main.cc": '#include "worker/b.h"\n'}), [])

    def test_folders_in_a_circle(self):
        def tree(below):
            return {"worker/c/a.h": GOOD_HEADER, "worker/main.cc": '#include "worker/a/a.h"\n'} | {
                f"worker/{name}/a.h": f'#pragma once\n#include "worker/{other}/a.h"\n'
                for name, other in below.items()}

        self.assertEqual(findings_of(tree({"a": "b", "b": "c"})), [])
        found = findings_of(tree({"a": "b", "b": "c", "c": "a"}))
        self.assertEqual(len(found), 3, found)
        self.assertIn("worker/a/a.h:2: worker/b/a.h closes a circle", found[0])

    def test_program_fails_on_a_finding(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            command = [sys.executable, str(HERE / "tidy.py"), "--root", folder]
            self.assertEqual(subprocess.run(command, capture_output=True).returncode, 1)
            grow_tree(root, {"worker/a.cc": "int a;\n"})
            self.assertEqual(subprocess.run(command, capture_output=True).returncode, 0)
            grow_tree(root, {"worker/a.cc": "\tint a;\n"})
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertTrue(done.stdout.startswith("worker/a.cc:1: tab"), done.stdout)


class Headers(unittest.TestCase):
    def test_header_that_needs_another_fails_until_repaired(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            build = root / "build"
            grow_tree(root, {"worker/good.h": GOOD_HEADER,
                             "worker/bad.h": '#pragma once\n#include "worker/low.h"\nint64_t F();\n',
                             "worker/low.h": "#pragma once\n"})
            counts, found = headers.check(root, build, COMPILER)
            self.assertEqual([f.path for f in found], ["worker/bad.h"], counts)
            counts, found = headers.check(root, build, COMPILER)
            self.assertIn("1 compiled, 1 findings", counts)
            # A change further down counts too: the repair is in the header that bad.h includes.
            grow_tree(root, {"worker/low.h": "#pragma once\n#include <cstdint>\n"})
            counts, found = headers.check(root, build, COMPILER)
            self.assertEqual(found, [])
            self.assertIn("2 compiled", counts)
            self.assertIn("0 compiled", headers.check(root, build, COMPILER)[0])


if __name__ == "__main__":
    if "--compiler" in sys.argv:
        at = sys.argv.index("--compiler")
        COMPILER = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    unittest.main(verbosity=1)
