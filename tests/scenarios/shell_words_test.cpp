// SPDX-License-Identifier: Apache-2.0
// What shell scripts give to the programs they start: a row for each construct, with what bash has.
#include "scenarios/shell_words.hpp"

#include "base/error.hpp"
#include "tests/shared.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace penstock::shell_words_test {
namespace {

std::string text_of(const std::vector<ScriptOption>& options) {
  std::string out;
  for (const ScriptOption& o : options) {
    out += (o.bundle ? "" : "--") + o.name;
    for (const std::string& value : o.values) out += " " + value;
    if (!o.condition.empty()) out += " <" + o.condition + ">";
    out += "\n";
  }
  return out;
}

std::string options_in(const std::string& script, const ScriptSurroundings& defined = {}) {
  try {
    return text_of(script_options(script, defined));
  } catch (const InputError& error) {
    return error.diagnostics().front().message;
  }
}

/// `set` and then `run --x WORD`: what the program gets, "unknown NAMES" where that is not known.
std::string got(const std::string& script) {
  std::string out;
  try {
    for (const ScriptOption& option : script_options(script)) {
      for (const std::string& value : option.values) out += (out.empty() ? "" : " ") + value;
      if (!option.asked.empty()) out += " asks";
      for (const std::string& name : option.asked) out += " " + name;
    }
  } catch (const InputError& error) {
    return std::string("error: ") + error.what();
  }
  return out;
}

struct Row {
  const char *script, *value;
};

void expect_rows(std::initializer_list<Row> rows) {
  for (const auto& [script, value] : rows) EXPECT_EQ(got(script), value) << script;
}

TEST(ScriptOptions, AreFoundInCommandsArraysAndVariables) {
  EXPECT_EQ(options_in("python a.py --one 1 --two_words --three=3 \\\n  --four a b\n"),
            "--one 1\n--two-words\n--three 3\n--four a b\n");
  EXPECT_EQ(options_in("ARGS=(\n  --one 1   # the first\n  --two\n)\nrun ${ARGS[@]} --three 3\n"),
            "--one 1\n--two\n--three 3\n");
  EXPECT_EQ(options_in("OPTIONS=\" \\\n --one 1 \\\n --two 2\"\nrun $OPTIONS --three 3"),
            "--one 1\n--two 2\n--three 3\n");
}

TEST(ScriptOptions, EndWithTheirCommand) {
  EXPECT_EQ(options_in("ARGS=\"--one 1 --two 2\"\ntorchrun --three 3 $ARGS\n"),
            "--three 3\n--one 1\n--two 2\n");
  EXPECT_EQ(options_in("run --one 1; torchrun --two 2 && echo --three 3"), "--one 1\n")
      << "two launches are two";
  EXPECT_EQ(options_in("--one\n1\n--two\n2\n"), "--one 1\n--two 2\n") << "a word a line";
  EXPECT_EQ(options_in("# arguments\n--one 1\n\n--two\n"), "--one 1\n--two\n");
}

TEST(ScriptOptions, VariablesAreFollowed) {
  EXPECT_EQ(options_in("TP=8\nPP=${PP:-4}\nrun --tp $TP --pp ${PP} --gpus $((TP * $PP + 1))\n"),
            "--tp 8\n--pp 4\n--gpus 33\n");
  EXPECT_EQ(
      options_in("N=2\nrun --gpus $((${N}*8)) --nodes ${NNODES:-${SLURM_NNODES:-4}} --x ${Y-8}\n"),
      "--gpus 16\n--nodes 4\n--x 8\n");
  EXPECT_EQ(options_in("run --tp $1 --pp ${UNKNOWN} --x \"$(nproc)\"\n"),
            "--tp $1\n--pp $UNKNOWN\n--x $(nproc)\n");
  EXPECT_EQ(options_in("A=$B\nB=$A\nrun --a $A$A\n"), "--a $B$B\n");
}

TEST(ScriptOptions, CommentsCountOnlyForSlurm) {
  EXPECT_EQ(options_in("#SBATCH --nodes=4\n# --old 1\nrun --new 2 # --more 3\n"),
            "--nodes 4\n--new 2\n");
  EXPECT_EQ(options_in("#!/bin/bash\n##SBATCH --nodes=4\ntrue\n#SBATCH --nodes=8\nrun --new 2\n"),
            "--new 2\n")
      << "Slurm reads up to the first command";
}

TEST(ScriptOptions, WhatSlurmSaysIsKnown) {
  EXPECT_EQ(options_in("#SBATCH -N 16\n#SBATCH --gres=gpu:a100:4\nrun --a $SLURM_NNODES --b "
                       "$((SLURM_NNODES * SLURM_GPUS_ON_NODE))\n"),
            "--nodes 16\n--gres gpu:a100:4\n--gpus-per-node 4\n--gpu-model a100\n--a 16\n--b 64\n");
  EXPECT_EQ(options_in("srun -N2 --a 1 > --log 2>&1 | tee --b\n"), "--nodes 2\n--a 1\n");
  EXPECT_EQ(options_in("srun -n 16 --gpus-per-node=h100:4 a.py -n 3 --a 1"),
            "--ntasks 16\n--gpus-per-node 4\n--gpu-model h100\n--a 1\n");
  EXPECT_EQ(options_in("#SBATCH --mem=64G -J name -n 16 -G a100:8 -N2\n#SBATCH -p long\nrun --a "
                       "$SLURM_NTASKS --b $SLURM_GPUS"),
            "--mem 64G\n--ntasks 16\n--gpus 8\n--gpu-model a100\n--nodes 2\n--a 16\n--b 8\n");
  EXPECT_EQ(options_in("srun -N 2 -Gh100:16 -n16 -name x a.py -G 3 --a 1"),
            "--nodes 2\n--gpus 16\n--gpu-model h100\n--ntasks 16 -name x a.py -G 3\n--a 1\n");
  EXPECT_EQ(options_in("mpirun -np 32 -npernode 4 python a.py --a 1"),
            "--ntasks 32\n--ntasks-per-node 4 python a.py\n--a 1\n");
}

TEST(ScriptOptions, WhatIsDefinedStays) {
  EXPECT_EQ(options_in("N=4\nM=$(nproc)\nrun --n $N --m $M --x $((X * N)) --y $((Y * N))",
                       {{"N", "8"}, {"X", "2"}}),
            "--n 8\n--m $M\n--x 16\n--y $((Y * N))\n");
  EXPECT_EQ(options_in("N=${N:-4}\nN=$((N * 2))\nO=--o\nO+=' --p'\nunset N O\nread N <<< 3\n"
                       "run --n $N $O ${A[@]}",
                       {{"N", "8"}, {"O", "--q 1"}, {"A", "--a 1 --b"}}),
            "--n 16\n--q 1\n--p\n--a 1\n--b\n")
      << "what is computed from itself is computed";
  EXPECT_EQ(options_in("run --n $1 --m ${2:-7} $#", {{"1", "8"}}), "--n 8\n--m 7 1\n");
}

TEST(ScriptOptions, ConditionsThatAreKnownDecide) {
  const struct {
    const char *script, *options;
  } kCases[] = {
      {"A=1\nif [ \"$A\" = 1 ]; then\n X=3\nelse\n X=4\nfi\nrun --x $X", "--x 3\n"},
      {"A=2\nif [[ $A == 1 ]]\nthen X=3; elif [ $A -gt 1 ]; then X=4; else X=5; fi\nrun --x $X",
       "--x 4\n"},
      {"A=\nif [ ! -z \"$A\" ]; then run --x 1; fi\nrun --y", "--y\n"},
      {"A=1\n[ \"$A\" ] && OPTS=\"--x 1\"\n[ -z \"$A\" ] && OPTS=\"$OPTS --y 2\"\nrun $OPTS --z",
       "--x 1\n--z\n"},
      {"A=7b\n[ $A = 7b ] && N=32 || N=40\nrun --n $N", "--n 32\n"},
      {"A=13b\n[ $A = 7b ] && N=32 || N=40\nrun --n $N", "--n 40\n"},
      {"A=0\ntest $A -eq 1 && run --x\nif ! [ $A = 1 ] && [ $A != 2 ]; then run --y; fi", "--y\n"},
      {"A=1\nif [ $A = 0 ]; then\n if [ $B = 1 ]; then run --x; fi\n run --y\nfi\nrun --z",
       "--z\n"},
      {"A=0\n[ $A = 1 ] && {\n run --x\n run --y\n}\nrun --z", "--z\n"},
      {"PP=4\nif (( PP > 1 )); then O='--vp 2'; fi\nrun $O", "--vp 2\n"},
      {"A=7b\ncase $A in 7b) N=32;; 13b) N=40;; *) N=1;; esac\nrun --n $N", "--n 32\n"},
      {"[ -z \"$VP\" ] && VP=3\n[ -n \"$DEBUG\" ] && VP=1\nrun --vp $VP", "--vp 3\n"},
  };
  for (const auto& [script, options] : kCases) EXPECT_EQ(options_in(script), options) << script;
}

/// Both ways stay: whoever understands an option asks for what decides.
TEST(ScriptOptions, UnknownConditionsAreTakenAsTrueAndSaid) {
  const struct {
    const char *script, *options;
  } kCases[] = {
      {"O=--a\nif [ \"$D\" = 1 ]; then\n  O=\"$O --use-zero\"\nfi\nrun $O --b",
       "--a\n--use-zero <[ \"$D\" = 1 ]>\n--b\n"},
      {"if [ $A = 1 ]; then X=3; else X=4; fi\nrun --x $X --y 1", "--x $X\n--y 1\n"},
      {"O=()\n[ $A = 1 ] || O+=(--x)\nrun \"${O[@]}\" --y", "--x <! [ $A = 1 ]>\n--y\n"},
      {"if grep --quiet a b; then run --x; fi; run --y", "--x\n"},
      {"case $A in\n 7b) N='--n 32';;\n --odd|*) N='--n 40';;\nesac\nrun $N",
       "--n 32 <case $A in 7b)>\n--n 40 <! case $A in 7b)>\n"},
      {"case $A in 7b) N=32;; 13b) N=40;; esac\nrun --n $N", "--n $N\n"},
  };
  for (const auto& [script, options] : kCases) EXPECT_EQ(options_in(script), options) << script;
}

TEST(ScriptOptions, NoTextIsTooOdd) {
  for (const char* odd : {"",
                          "--",
                          "'",
                          "\"",
                          "$",
                          "${",
                          "$((",
                          "$((1/0))",
                          "A=",
                          "=",
                          "\\",
                          "--a=",
                          "((",
                          "if",
                          "fi",
                          "case",
                          "case x in",
                          "esac",
                          "[",
                          "[ a",
                          "test",
                          "then",
                          "else",
                          "if [ a ]; fi",
                          "#SBATCH -N",
                          "{",
                          "}",
                          "a && ",
                          "|| a",
                          "! !",
                          "[[",
                          "[[ a ]",
                          "f(",
                          "f()",
                          "<<",
                          "<<E",
                          "<<<",
                          "`",
                          "$'",
                          "${a[",
                          "${a:",
                          "${#",
                          "${!",
                          "A=(",
                          "A[",
                          "A[1",
                          "for",
                          "for ((;;",
                          "while",
                          "$(",
                          "<(",
                          "{1..}",
                          "{,",
                          "&",
                          ">",
                          "alias",
                          "alias a=",
                          "alias a=$(ls)",
                          "x() { x; }; x"})
    try {
      script_options(odd);
    } catch (const InputError&) {  // as bash, which takes few of them
    }
}

// ---- what bash has

TEST(ShellWords, ParametersAreExpanded) {
  expect_rows({
      {"L=2400; run --x ${L%00}", "24"},
      {"L=a.b.c; run --x ${L%%.*} ${L%.*} ${L#*.} ${L##*.}", "a a.b b.c c"},
      {"L=x24; run --x ${L#x} ${L:1} ${L:0:2} ${L: -1} ${#L}", "24 24 x2 4 3"},
      {"L=2x2; run --x ${L/x/4} ${L//2/1} ${L/2}", "242 1x1 x2"},
      {"L=1; run --x ${L:+24} ${M:+25} ${L:-2} ${M:-3} ${M-4} ${M+5}", "24 1 3 4"},
      {"L=aB; run --x ${L^^} ${L,,} ${L^} ${L,}", "AB ab AB aB"},
      {": ${L:=24}; run --x $L", "24"},
      {"A=(1 2 3); run --x ${A[0]} ${A[-1]} ${#A[@]} ${A[@]:1} ${A}", "1 3 3 2 3 1"},
      {"declare -A S=([7b]=32 [13b]=40); M=13b; run --x ${S[$M]} ${S[7b]}", "40 32"},
      {"L=${N%00}; run --x $L", "${N%00} asks N"},
      {"run --x ${L/a/&}", "${L/a/&} asks L"},
      {"L=a; run --x ${L/a/&}", "${L/a/&}"},
  });
}

TEST(ShellWords, AssignmentsAreFollowed) {
  expect_rows({
      {"L=2; L+=4; run --x $L", "24"},
      {"L=24; (L=48); run --x $L", "24"},
      {"L=24; false && L=48; run --x $L", "24"},
      {"L=24; true || L=48; run --x $L", "24"},
      {"L=24; unset L; run --x \"$L\"", ""},
      {"L=24; read L <<< 48; run --x $L", "48"},
      {"read -r -d '' A <<EOF\n  --x 24\n --y 3\nEOF\nrun $A", "24 3"},
      {"read -d '' A <<'EOF'\n--x\n24\nEOF\nrun $A", "24"},
      {"IFS=' ' read -ra A <<< '--x 24'; run ${A[@]}", "24"},
      {"IFS=' ' read -r A B <<< '1\t2 24'; run --x $B", "24"},
      {"IFS= read -r A <<< ' 24 '; run --x \"[$A]\"", "[ 24 ]"},
      {"set -e\nread -d '' A <<< 24\nrun --x $A", ""},
      {"read -ra A <<< '1 24'; run --x ${A[1]} ${#A[@]}", "24 2"},
      {"L=24; read A L < sizes; run --x $L", "$L asks L"},
      {"L=24 true; run --x \"$L\"", "$L asks L"},
      {"L=24; L=48 run --x $L", "24"},
      {"let L=6*4; run --x $L", "24"},
      {"declare -i L=6*4; run --x $L", "24"},
      {"export L=24; readonly M=$L; run --x $M", "24"},
      {"L=24; f() { L=48; }; run --x $L", "24"},
      {"L=24; f() { L=$1; }; f 48; run --x $L", "48"},
      {"L=24; f() { local L=48; }; f; run --x $L", "24"},
      {"L=23; f() { local L=$L; L=$((L+1)); run --x $L; }; f", "24"},
      {"L=a/24; L=${L//\\//-}; run --x $L", "a-24"},
      {"f() { return; L=1; }; L=24; f; run --x $L", "24"},
      {"set -- 1 24; shift; run --x $1 $#", "24 1"},
      {"L=24 | cat; run --x \"$L\"", "$L asks L"},
      {"L=24; { L=48; }; run --x $L", "48"},
      {"L=24; eval 'L=48'; run --x $L", "48"},
      {"L=`nproc`; run --x $L", "$L asks L"},
      {"L=24 # 48\nrun --x $L#1", "24#1"},
  });
}

TEST(ShellWords, BlocksAreFollowed) {
  expect_rows({
      {"for L in 1 2 24; do :; done; run --x $L", "24"},
      {"L=1; for i in 1 2 3; do L=$((L*2)); [ $i = 2 ] && break; done; run --x $L", "4"},
      {"L=0; for ((i=0; i<4; i++)); do L=$((L+6)); done; run --x $L", "24"},
      {"L=0; while (( L < 24 )); do ((L+=8)); done; run --x $L", "24"},
      {"L=3; until [ $L -ge 24 ]; do L=$((L*2)); done; run --x $L", "24"},
      {"L=24; for f in $(ls); do L=48; done; run --x $L", "$L asks L"},
      {"L=24; while read line; do L=48; done < file; run --x $L", "$L asks L"},
      {"case a.b in a*) L=24;; *) L=48;; esac; run --x $L", "24"},
      {"if [[ 24 == 2? && ! -z x ]]; then L=24; fi; run --x $L", "24"},
      {"[ 3 -lt 24 -a a != b ] && L=24; run --x $L", "24"},
      {"L=24; cat <<EOF\nL=48 --x 3\nEOF\nrun --x $L", "24"},
      {"while true; do L=24; break; done; run --x $L", "24"},
      {"set -e\nL=24\nfalse\nrun --x $L", ""},
  });
}

TEST(ShellWords, ArithmeticIsThatOfBash) {
  expect_rows({
      {"run --x $((2**10)) $((-2**2)) $((7/2)) $((-7%3)) $((1<<4|1))", "1024 4 3 -1 17"},
      {"A=3; run --x $((A>2?24:48)) $((A++)) $((++A)) $((A+=2)) $((A,2)) $A", "24 3 5 7 2 7"},
      {"A=B; B=24; run --x $((A)) $((!A)) $((~0)) $(( 0 && 1/0 ))", "24 0 -1 0"},
      {"run --x $((A*8))", "$((A*8)) asks A"},
      {"run --x $((1/0)) $((010)) $((0x10)) $((9223372036854775807+1))",
       "$((1/0)) $((010)) $((0x10)) $((9223372036854775807+1))"},
  });
}

/// Whatever may assign a variable otherwise than is followed makes it unknown.
TEST(ShellWords, WhatIsNotFollowedIsUnknown) {
  for (const char* script :
       {"L=N; L=${!L}",
        "A=(1); L=${!A[@]}",
        "L=a; L=${L@U}",
        "L=2x2; L=${L/#2/}",
        "L=b; L=${L%[ab]}",
        "printf -v L %d 24",
        "L=$(printf %02d 4)",
        "declare -i L=6*4; L+=1",
        "declare -u L; L=b",
        "declare -n M=L; M=24",
        "IFS=, read -r A L <<< 1,24",
        "IFS=, read -ra L <<< 1,24",
        "read -n 2 L <<< 248",
        "IFS=,; read -r L <<< 24",
        "read -p 'L? ' L",
        "mapfile -t L < file",
        "getopts ab: L",
        "for L in {1..3}; do :; done",
        "case b in a) L=1;; b) L=24;& c) M=2;; esac",
        "if [[ llama-7b =~ ^llama ]]; then L=24; fi",
        "select L in 1 24; do break; done",
        "RANDOM=24; L=$RANDOM",
        "trap 'L=48' ERR; L=24",
        "f() { L=48; }; trap f EXIT; L=24",
        "A='L=48'; L=24; B=$((A))",
        "L=24; eval \"$(printf 'L=48')\"",
        "L=24; (( A[0] = L++ ))",
        "L=24; B=${!A:=$L}",
        "L=24; export $(sort .env)",
        "L=24; true | true && L=12",
        "shopt -s extglob; case b in @(a|b)) L=24;; esac",
        "L=\"ab ${A:-\"{a,b}\"}\"; for L in \"ab ${A:-\"{a,b}\"}\"; do :; done"})
    EXPECT_NE(got(std::string(script) + "; run --x $L").find("asks"), std::string::npos) << script;
  expect_rows({
      {"set -- a $A; run --x $#", "$#"},
      {"B=($A b); run --x ${#B[@]}", "${#B[@]} asks B"},
      {"f() { run --x $2; }; f $A b", "$2 asks 2"},
  });
}

TEST(ShellWords, ArithmeticHasALimit) {
  std::string wide = "V0=1\n", deep = "D0=1\n";
  for (int i = 1; i <= 14; ++i) {
    const std::string of = "V" + std::to_string(i - 1);
    wide += "V" + std::to_string(i) + "=\"" + of;
    for (int k = 0; k < 7; ++k) wide += "+" + of;
    wide += "\"\n";
  }
  for (int i = 1; i <= 20; ++i)
    deep += "D" + std::to_string(i) + "='" + std::string(30, '(') + "D" + std::to_string(i - 1) +
            std::string(30, ')') + "'\n";
  EXPECT_EQ(got(wide + "run --x $((V14))"), "$((V14))");
  EXPECT_EQ(got(deep + "run --x $((D20))"), "$((D20))");
  EXPECT_EQ(got("A=('A[B]'); B='A[B]'; run --x $((B))"), "$((B))");
  EXPECT_EQ(got("A=1; for ((i = 0; i < 1500; ++i)); do A=$((A + i % 2)); done; run --x $A"), "751");
}

TEST(ShellWords, DefinitionsAreOrdinaryText) {
  for (const char* value : {"+\x01",
                            "1+\x01"
                            "9\x02",
                            "\x02"})
    EXPECT_THROW(script_options("run --x $((L))", {{"L", value}}), InputError);
}

TEST(ShellWords, DocumentsThatArePrintedAreText) {
  expect_rows({
      {"L=24\nA=$(cat <<EOF\n--x $L\n  8\nEOF\n)\nrun $A", "24 8"},
      {"A=$(cat <<'EOF'\n--x $L\nEOF\n)\nrun $A", "$L"},
      {"A=$(cat <<EOF | sort\n--x 1\nEOF\n)\nrun --x $A", "$A asks A"},
  });
}

TEST(ShellWords, AFolderElsewhereMayBeMissing) {
  expect_rows({
      {"L=24; cd /nowhere && L=12; run --x $L", "$L asks L"},
      {"L=24; cd \"$(dirname \"$0\")\" && L=12; run --x $L", "12"},
      {"L=24; cd \"$(dirname \"$0\")/..\" && L=12; run --x $L", "12"},
      {"set -e; cd /nowhere; cd /nowhere || exit 1; L=24; run --x $L", "24"},
      {"cd /nowhere && run --x 24", "24"},
  });
}

TEST(ShellWords, ArgumentsOfOtherCommandsAreNoFlags) {
  for (const char* command :
       {"echo --num-layers 12", "printf '%s' --num-layers 12", "cat --num-layers 12",
        "export A=--num-layers", "f() { other --num-layers 12; }", "false && other --num-layers 12",
        "A=(--num-layers 12)", "grep --num-layers 12", ": --num-layers 12", "# --num-layers 12",
        "cat <<EOF\nother --num-layers 12\nEOF", "exec 3<<< '--num-layers 12'", "alias x=y",
        "alias ll='other --num-layers 12'; echo", "if false; then other --num-layers 12; fi",
        "echo \"python --num-layers 12\" | tee log"})
    EXPECT_EQ(options_in(std::string(command) + "\nrun --x 1"), "--x 1\n") << command;
}

TEST(ShellWords, ShellsWithinShellsAreRead) {
  expect_rows({
      {"srun -N4 bash -c 'run --x 24'", "4 run 24"},
      {"L=24; srun bash -c \"run --x $L\"", "24"},
      {"L=24; bash -c 'run --x $L'", "$L asks L"},
      {"export L=24; bash -c 'run --x $L $1' me 48", "24 48"},
      {"CMD=\"run --x 24\"; echo $CMD; eval $CMD", "24"},
      {"CMD=\"run --x 24\"; $CMD", "24"},
      {"bash <<EOF\nrun --x 24\nEOF", "24"},
      {"sbatch --nodes=2 --wrap='run --x 24'", "2 run 24"},
      {"ssh host \"cd x && run --x 24\"", "24"},
      {"exec run --x 24\nrun --x 48", "24"},
  });
}

TEST(ShellWords, WhatNothingSetsIsAskedForWhereItMayHoldFlags) {
  EXPECT_EQ(options_in("run $EXTRA_ARGS --x 1"), "$EXTRA_ARGS\n--x 1\n");
  EXPECT_EQ(options_in("run --x 1 \"${ARGS[@]}\""), "--x 1\n${ARGS[@]}\n");
  EXPECT_EQ(options_in("run --save $CHECKPOINT $SCRIPT_PATH --x 1"),
            "--save $CHECKPOINT $SCRIPT_PATH\n--x 1\n");
  EXPECT_EQ(options_in("ARGS=() OPTS=\nrun \"${ARGS[@]}\" $OPTS \"$@\" --x 1"), "--x 1\n");
  EXPECT_EQ(options_in("run ${EXTRA_ARGS:-} ${A[@]+\"${A[@]}\"} --x 1"), "--x 1\n");
}

TEST(ShellWords, LinesOfDosAreLines) {
  EXPECT_EQ(options_in("L=24\r\nrun --x $L \\\r\n  --y 2\r\n"), "--x 24\n--y 2\n");
}

TEST(ShellWords, OneOfSeveralLaunchesIsTaken) {
  const std::string script =
      "run --x 1\nif [ $A = 1 ]; then run --y 2; else run --z 3; fi\nls --x\n";
  const auto all = [](const std::string&) { return true; };
  ScriptSurroundings surroundings;
  EXPECT_EQ(text_of(script_launch(script, "a.sh", surroundings, all).options), "--x 1\n");
  const auto notes = script_launch(script, "a.sh", surroundings, all).notes;
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(
      notes[0],
      "launch 1 of 3, 'run --x 1' in line 1: --launch N takes another, 2 (line 2), 3 (line 2)");
  surroundings.launch = 3;
  EXPECT_EQ(text_of(script_launch(script, "a.sh", surroundings, all).options), "--z 3\n");
  surroundings.launch = 4;
  EXPECT_THROW(script_launch(script, "a.sh", surroundings, all), InputError);
  surroundings.launch = 0;
  const auto z = [](const std::string& name) { return name == "z"; };
  EXPECT_EQ(text_of(script_launch(script, "a.sh", surroundings, z).options), "--z 3\n");
}

TEST(ShellWords, AFileThatTheScriptWritesIsItsOwn) {
  EXPECT_EQ(options_in("N=4\ncat > job.slurm <<EOF\n#!/bin/bash\n#SBATCH --nodes=$N\n"
                       "run --x \\$SLURM_NNODES\nEOF\nsbatch ./job.slurm\n"),
            "--nodes 4\n--x 4\n");
  EXPECT_EQ(options_in("cat <<'E' >$D/a.sh\nL=24\nE\n. $D/a.sh\nrun --x $L\n"), "--x 24\n");
  EXPECT_EQ(options_in("echo 'L=1' > a.sh\necho 'M=2' >> a.sh\n. ./a.sh\nrun --x $L$M\n"),
            "--x 12\n");
  // What is in it is not known: it is asked for, as any other file is.
  EXPECT_NE(options_in("if [ -f q ]; then echo L=1 > a.sh; fi\n. ./a.sh\nrun --x $L\n")
                .find("reads './a.sh'"),
            std::string::npos);
}

TEST(ShellWords, OptionsOfNoCommandAreSaid) {
  const auto launch = script_launch("run --x 1 \\\n  # --y 2 \\\n  --z 3\n", "a.sh", {},
                                    [](const std::string&) { return true; });
  EXPECT_EQ(text_of(launch.options), "--x 1\n");
  ASSERT_EQ(launch.notes.size(), 1U);
  EXPECT_EQ(launch.notes[0],
            "left out: '--z 3' in line 3 is a command of its own, as the line before it does not "
            "continue");
}

TEST(ShellWords, ErrorsOfTheScriptHaveTheirPlace) {
  const struct {
    const char *script, *what;
  } kCases[] = {
      {"A=1\nif [ $A ]; then\nrun --x\n",
       "script:4:1: the script ends where more is needed: stands where 'fi' of 'if' is expected"},
      {"run --x 'a\nb", "script:1:9: the quote ' is not closed"},
      {"A=(1 2\nrun", "script:1:3: the array's ( is not closed"},
      {"run | | run", "script:1:7: '|' is not expected here"},
      {"readonly A=1\nA=2", "script:2:3: 'A' is assigned, which is readonly"},
      {"f() { f; }; f", "script:1:7: is called too deeply within itself"},
      {"shopt -s lastpipe\necho 8 | read L", "script:1:1: 'shopt -s lastpipe' is not followed"},
      {"while :; do :; done\nrun --x", ""},
  };
  for (const auto& [script, what] : kCases) {
    const std::string message = got(script);
    EXPECT_EQ(message.substr(0, message.find('\n')),
              *what == '\0' ? "" : std::string("error: ") + what)
        << script;
  }
}

/// Nothing is followed for longer than a number of steps, each of which has a bounded cost.
TEST(ShellWords, EndWhateverTheScriptIsMadeOf) {
  const struct {
    const char *before, *repeated, *behind;
  } kShapes[] = {
      {"", "$(", ""},
      {"", "\"", ""},
      {"", "(", ""},
      {"", "{ ", ""},
      {"", "a&", ""},
      {"run ", "\\\n", ""},
      {"run ", "{a,b}", ""},
      {"run ", "{a,", ""},
      {"run ", "${A:-", ""},
      {"run ", "\"${A:-", ""},
      {"run ", "--x 1 ", ""},
      {"true ", "&& true ", ""},
      {"$X ", "|| $X ", ""},
      {"a ", "| a ", ""},
      {"[[ ", "! ", "a ]]"},
      {"[[ ", "( ", "a ]]"},
      {"[ ", "! ", "a ]"},
      {"[ ", "a -o ", "a ]"},
      {"export ", "a[ ", ""},
      {"A=( ", "[ ", ")"},
      {"if false; then :; ", "elif false; then :; ", "fi"},
      {"if $X; then :; ", "elif $X; then :; ", "fi"},
      {"case $X in ", "a) A=1;; ", "esac"},
      {"A=$((", "1+", "1)); run --x $A"},
      {"A=$((", "(", "1)); run --x $A"},
      {"A=aaaaaaaaaaaaaaaaaaaa\n", "A=$A$A\n", ""},
      {"A=aaaaaaaaaaaaaaaaaaaa\n", "A=\"$A$U$A\"\n", ""},
      {"", "[ $X ] && A=\"--x $A\"\n", "run $A"},
      {"", "[ $X ] && A=\"$A --x\"\n", "run $A"},
      {"", "[ $X ] && A+=(--x)\n", "run \"${A[@]}\""},
      {"[ $X ] && A=\"--x $A\"; [ $X ] && A=\"--x $A\"\n", "run $A\n", ""},
      {"", "A+=(--x)\n", ""},
      {"", "A=$(echo $A a)\n", ""},
      {"", "( : )\n", ""},
      {"", "while $X; do while $X; do while $X; do A=1; done; done; done\n", ""},
      {"f() { f; f; }\n", "f\n", ""},
      {"A='eval \"$A\"'\n", "eval \"$A\"\n", ""},
      {"A=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", "B=${A%%*a*a*a*a*c}\n", ""},
      {"A=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", "B=${A//a/bb}\n", ""},
      {"for i in 1 2 3 4 5 6 7 8 9; do cat <<E\n", "$A \"x\" ", "\nE\ndone"},
      {"for i in 1 2 3 4 5 6 7 8 9; do : ", "'a' ", "; done"},
      {"cat ", "<<E ", "\n"},
      {"set -- ", "a ", "\nfor a; do run \"$@\"; done"},
      {"", "read A B C\n", ""},
      {"", "trap 'A=1' EXIT\n", ""},
      {"", "cd a\n", ""},
  };
  for (const auto& [before, repeated, behind] : kShapes) {
    std::string script = before;
    while (script.size() < 300'000) script += repeated;
    script += behind;
    EXPECT_LT(got(script).size(), 2'000'000U) << before << repeated;
  }
}

// ---- files

class ShellFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("penstock-source-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_ / "lib");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  std::string of(const std::string& script, ScriptSurroundings surroundings = {}) const {
    surroundings.file = (folder_ / "run.sh").string();
    try {
      return text_of(script_launch(script, "run.sh", surroundings, [](const std::string&) {
                       return true;
                     }).options);
    } catch (const InputError& error) {
      std::string out;
      for (const Diagnostic& one : error.diagnostics())
        out += std::to_string(one.where.line) + ": " + one.message + "\n";
      return out;
    }
  }

  std::filesystem::path folder_;
};

TEST_F(ShellFiles, AreReadRelativeToTheScript) {
  write("sizes.sh", "ARGS=(--x 24)\n[ -n \"$GUARD\" ] && return\nGUARD=1\n");
  write("lib/more.sh", "source \"$(dirname \"${BASH_SOURCE[0]}\")/last.sh\"\n");
  write("lib/last.sh", "Y=$1\n");
  for (const char* source :
       {"source sizes.sh", ". ./sizes.sh", "source \"$(dirname \"$0\")/sizes.sh\"",
        "DIR=\"$(cd \"$(dirname \"$0\")\" && pwd)\"\nsource \"${DIR}/sizes.sh\"",
        "D=$( cd -- \"$( dirname -- \"${BASH_SOURCE[0]}\" )\" &> /dev/null && pwd )\n. $D/sizes.sh",
        "source ${0%/*}/sizes.sh || true\nsource sizes.sh", "cd lib; source ../sizes.sh",
        "source $(realpath $(dirname $0))/sizes.sh", "[ -f sizes.sh ] && . sizes.sh",
        "source \"$PWD/sizes.sh\"", "f() { source sizes.sh; }; f"})
    EXPECT_EQ(of(std::string(source) + "\nrun \"${ARGS[@]}\""), "--x 24\n") << source;
  EXPECT_EQ(of("source lib/more.sh\nrun --y $Y"), "--y $1\n");
  EXPECT_EQ(of("source lib/last.sh 7\nrun --y $Y"), "--y 7\n");
  EXPECT_EQ(of("source $MODEL.sh\nrun \"${ARGS[@]}\"", {{"MODEL", "sizes"}}), "--x 24\n");
  write("inner.sh", "run --a $1 --b $B --c $C\n");
  EXPECT_EQ(of("export B=2\nC=3\nbash inner.sh 1"), "--a 1\n--b 2\n--c $C\n");
}

TEST_F(ShellFiles, ThatAreNotThereAreAskedForAtOnce) {
  EXPECT_EQ(of("source $MODELS/a.sh\nsource b.sh\nrun --x 1"),
            "1: reads '$MODELS/a.sh', whose place is not known: give --define MODELS=VALUE\n"
            "2: reads 'b.sh', which is not there: put it in its place beside the script\n");
  EXPECT_EQ(of("source ~/.bashrc\nsource venv/bin/activate\n[ -f b.sh ] && . b.sh\nrun --x 1"),
            "--x 1\n");
  EXPECT_EQ(
      options_in("source b.sh\nrun --x 1"),
      "reads 'b.sh', and the script is no file beside which it could lie: give the script's file");
}

TEST_F(ShellFiles, ThatReadThemselvesAreRefused) {
  write("a.sh", "source b.sh\n");
  write("b.sh", "source a.sh\n");
  EXPECT_EQ(of("source a.sh\nrun --x 1"),
            "1: reads itself, or files too deep within one another\n");
  write("large.sh", std::string(2 << 20, '\n'));
  EXPECT_NE(of("source large.sh").find("larger than 1 MiB"), std::string::npos);
  EXPECT_NE(of("source /dev/zero\nrun --x 1").find("is not there"), std::string::npos);
}

TEST(ShellWords, PublicCasesAreRead) {
  const auto folder = shared_folder() / "cases";
  SKIP_WITHOUT_SHARED(folder / "sourced.sh");
  const auto text = [&](const char* name) {
    std::ostringstream out;
    out << std::ifstream(folder / name).rdbuf();
    return out.str();
  };
  ScriptSurroundings surroundings;
  surroundings.file = (folder / "sourced.sh").string();
  const std::string sourced =
      text_of(script_launch(text("sourced.sh"), "sourced.sh", surroundings, [](const std::string&) {
                return true;
              }).options);
  EXPECT_NE(sourced.find("--num-layers 40\n"), std::string::npos) << sourced;
  EXPECT_NE(options_in(text("attack/expansion.sh")).find("--num-layers 24\n"), std::string::npos);
}

}  // namespace
}  // namespace penstock::shell_words_test
