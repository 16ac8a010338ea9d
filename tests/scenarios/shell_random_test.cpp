// SPDX-License-Identifier: Apache-2.0
// Random fragments of shell scripts, followed here and run by bash itself: every word that is known
// here is bash's. The fragments assign, test, expand and loop, and show words by `run`, which is a
// function for bash and a program here. bash has no environment, no programs and an empty folder.
#include "base/error.hpp"
#include "scenarios/shell_machine.hpp"
#include "tests/effort.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

namespace penstock::shell_random_test {
namespace {

using Words = std::vector<std::string>;

class Fragments {
 public:
  explicit Fragments(unsigned seed) : random_(seed) {}

  std::string script() {
    std::string out;
    for (const char* variable : {"A", "B", "C", "D"})
      if (below(8) > 0)
        out += std::string(variable) + "=" + (below(2) > 0 ? number() : text()) + "\n";
    if (below(8) > 0) out += "X=(" + text() + " " + plain() + ") Y=()\n";
    for (int i = below(6) + 3; i > 0; --i) out += statement(0) + "\n";
    return out + "run " + word() + " \"$A\" $B \"${C}\" \"${X[@]}\" ${#Y[@]}\n";
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  std::string one_of(std::initializer_list<const char*> texts) {
    return *(texts.begin() + below(static_cast<int>(texts.size())));
  }
  std::string name() { return one_of({"A", "B", "C", "D"}); }
  std::string array() { return one_of({"X", "Y"}); }
  std::string number() {
    return one_of({"0", "1", "2", "3", "7", "12", "24", "010", "0x1f", "100"});
  }

  std::string text() {
    return one_of({"24", "7b", "a.b", "path/to/x.tar.gz", "--tp", "2400", "'two words'", "\"q $A\"",
                   "''", "aXbXc", "Mixed", "x=y", "a\\ b", "$'c'", "\"it's\"", "''\"\"", "a:b:c",
                   "\\$A", "\"a\\\"b\""});
  }
  std::string plain() {
    return one_of({"24", "7b", "ab", "2400", "x.y.z", "a/b", "llama-7b", "00", "b"});
  }
  std::string pattern() {
    return one_of({"00", "*", "?", "[0-9]", "*b", "a*", "[!a]*", "*.*", "*/", "/*", "7*", "[ab]",
                   "\\*", "'*'", "X", "l?a*", "\"$B\"", "$A", "."});
  }

  std::string expansion() {
    const std::string n = name(), a = array();
    if (below(6) == 0) return rare_expansion();
    switch (below(34)) {
      case 0: return "${" + n + "%" + pattern() + "}";
      case 1: return "${" + n + "%%" + pattern() + "}";
      case 2: return "${" + n + "#" + pattern() + "}";
      case 3: return "${" + n + "##" + pattern() + "}";
      case 4: return "${" + n + ":" + one_of({"0", "1", "2", " -1", "$B", "1+1"}) + "}";
      case 5:
        return "${" + n + ":" + one_of({"0", "1", " -2"}) + ":" + one_of({"1", "2", "9", "0"}) +
               "}";
      case 6: return "${" + n + "/" + pattern() + "/" + plain() + "}";
      case 7: return "${" + n + "//" + pattern() + "/" + one_of({"-", "", "zz", "$B"}) + "}";
      case 8: return "${" + n + "/#" + pattern() + "/" + plain() + "}";
      case 9: return "${" + n + "/%" + pattern() + "/" + plain() + "}";
      case 10: return "${" + n + ":-" + word() + "}";
      case 11: return "${" + n + "-" + plain() + "}";
      case 12: return "${" + n + ":+" + word() + "}";
      case 13: return "${" + n + "+" + plain() + "}";
      case 14: return "${" + n + ":=" + plain() + "}";
      case 15: return "${#" + n + "}";
      case 16: return "${" + n + one_of({"^^", ",,", "^", ",", "^^[a-z]"}) + "}";
      case 17: return "${!" + n + "}";
      case 18: return "$((" + arithmetic(0) + "))";
      case 19: return "${" + a + "[" + one_of({"0", "1", "-1", "$A", "1+1"}) + "]}";
      case 20: return "${" + a + "[@]}";
      case 21: return "${" + a + "[*]}";
      case 22: return "${#" + a + "[@]}";
      case 23: return "${" + a + "[@]:" + one_of({"1", "0:1", "1:2"}) + "}";
      case 24: return "${" + a + "[@]" + one_of({"%b", "#a", "/a/b", "^^"}) + "}";
      case 25: return "${!" + a + "[@]}";
      case 26: return one_of({"$1", "$#", "$@", "${2:-two}", "${@:1}", "$*"});
      case 27: return "$(echo " + word() + ")";
      case 28: return "$(printf '%s-%d' " + plain() + " " + one_of({"1", "22", "-3"}) + ")";
      case 29: return "${" + a + "[@]+" + plain() + "}";
      case 30: return "${M[" + one_of({"k", "j", "$A"}) + "]}";
      case 31: return "${" + n + "@U}";
      default: return "$" + n;
    }
  }

  /// What launch scripts hardly have, and bash evaluates in ways of its own.
  std::string rare_expansion() {
    const std::string n = name(), a = array();
    switch (below(20)) {
      case 0:
        return "${U" + std::string(one_of({":-", "-", ":+", "+"})) +
               one_of({"a b", "a,b", "a:b c", "'a b'", "\"a b\" c", "{a,b}", "\"{a,b}\"", "$A $B",
                       "~", "*"}) +
               "}";
      case 1: return "${" + n + ":-\"{a,b}\"}";
      case 2: return "$'" + std::string(one_of({"a\\tb", "a\\'b", "\\x41", "c"})) + "'";
      case 3:
        return one_of({"$RANDOM", "$SECONDS", "$LINENO", "$UID", "$IFS", "$PS4", "${HOSTNAME:-h}",
                       "${OPTIND:-o}", "${REPLY:-r}", "$BASH_SUBSHELL", "${PIPESTATUS[0]}",
                       "${FUNCNAME:-f}", "${BASH_REMATCH[0]}", "$_", "$PPID", "$?", "$-", "$!"});
      case 4: return "${!" + n + one_of({"}", ":-d}", "@}", "*}"});
      case 5: return "${" + n + "@" + one_of({"Q", "U", "L", "E", "A", "a"}) + "}";
      case 6:
        return "$((" +
               std::string(one_of({"08", "8#7", "0x1f", "1,2", "A=B", "X[0]", "A[0]+1", "A++",
                                   "--A", "!A", "A?B:C", "1<2", "9223372036854775807+1", "1/0",
                                   "-7/2", "2**3**2", "A=1,B=A+1"})) +
               "))";
      case 7:
        return "${" + a + "[@]" +
               one_of({":-d}", ":+d}", "-d}", "+d}", ": -1}", ":1:1}", "/a/b}", "@Q}"});
      case 8:
        return "${" + a + "[" + one_of({"A", "$B", "5", "-2", "1-1", "\"0\"", "i"}) + "]" +
               one_of({"}", ":-d}", "%b}", ":=e}"});
      case 9:
        return "$(" +
               std::string(one_of({"printf '%02d' 7", "echo -n a", "echo -e 'a\\tb'",
                                   "A=9; echo $A", "echo a; exit 3", "f() { echo $A; }; f",
                                   "echo $(echo $B)", "read A <<< q; echo $A", "false; echo x",
                                   "echo 'a  b'", "echo *", "echo {a,b}"})) +
               ")";
      case 10: return "`echo " + plain() + "`";
      case 11: return one_of({"~", "a:~", "b=~", "\"~\"", "\\~", "~+", "~/x"});
      case 12: return one_of({"*", "?", "[a-c]", "a*", "\\*", "'*'", ".*", "@(a|b)"});
      case 13:
        return "${" + n + "/" +
               one_of(
                   {"#a/b", "%b/a", "a*/x", "?/x", "/a/b", "\"a\"/x", "$B/x", "a/&", "//-", "a"}) +
               "}";
      case 14:
        return "${" + n +
               one_of(
                   {"%%[0-9]*", "##*[!0-9]", "%?(b)", "^^[ab]", "~~", "%\"$B\"", "#$B", "%\\*"}) +
               "}";
      case 15: return "${@:" + std::string(one_of({"0", "1", "2", "1:1", " -1", "$#"})) + "}";
      case 16: return "${#" + std::string(one_of({"@", "*", "A", "X", "X[0]", "1", "U"})) + "}";
      case 17: return "<(echo " + plain() + ")";
      case 18: return "$[1+2]";
      default:
        return "${" + n + ":" + one_of({"$((1+1))", "(1)", "A>0?1:0", "0:$A", ":2", " -2:1"}) + "}";
    }
  }

  std::string word() {
    switch (below(7)) {
      case 0: return text();
      case 1: return expansion();
      case 2: return "\"" + expansion() + "\"";
      case 3: return plain() + expansion();
      case 4: return "\"" + plain() + " " + expansion() + "\"";
      case 5:
        return one_of({"{a,b}", "x{1..3}", "{01..3}y", "{a,b{c,d}}", "{3..1}", "{a}", "{,x}",
                       "{1..5..2}", "\"{a,b}\"", "{$A,b}"});
      default: return plain();
    }
  }

  std::string arithmetic(int depth) {
    if (depth > 2) return number();
    const std::string a = arithmetic(depth + 1), b = arithmetic(depth + 1), n = name();
    switch (below(16)) {
      case 0: return n;
      case 1: return "$" + n + "+1";
      case 2: return a + one_of({"+", "-", "*", " / ", "%", "**"}) + b;
      case 3: return "(" + a + one_of({"<", ">", "==", "!=", "<=", ">="}) + b + ")";
      case 4: return a + one_of({" && ", " || ", " & ", " | ", " ^ ", " << ", ">>"}) + b;
      case 5: return a + "?" + b + ":" + number();
      case 6: return one_of({"!", "~", "-", "+"}) + a;
      case 7: return n + one_of({"=", "+=", "-=", "*="}) + b;
      case 8: return n + one_of({"++", "--"});
      case 9: return one_of({"++", "--"}) + n;
      case 10: return a + "," + b;
      case 11: return "8#17+2#101";
      default: return number();
    }
  }

  std::string test() {
    const std::string n = name();
    switch (below(16)) {
      case 0: return "[ \"$" + n + "\" = " + plain() + " ]";
      case 1:
        return "[ $" + n + " -" + one_of({"eq", "ne", "lt", "gt", "le", "ge"}) + " " + number() +
               " ]";
      case 2: return "[[ $" + n + " == " + pattern() + " ]]";
      case 3: return "[ -z \"$" + n + "\" ]";
      case 4: return "test -n \"$" + n + "\"";
      case 5: return "[[ -n $" + n + " && " + "$B != 7b ]]";
      case 6: return "(( " + arithmetic(1) + " ))";
      case 7: return "[[ $A =~ ^[0-9]+$ ]]";
      case 8: return "! [ $" + n + " ]";
      case 9: return "[[ ! ( $A = $B || -z $C ) ]]";
      case 10: return "[ \"$A\" = 1 -o \"$B\" = 2 ]";
      case 11: return one_of({"true", "false"});
      case 12: return "[[ -v " + n + " ]]";
      case 13: return "[[ $" + n + " -gt " + number() + " ]]";
      case 14: return test() + one_of({" && ", " || "}) + test();
      default: return "[ ! \"$A\" != \"$B\" ]";
    }
  }

  std::string block(int depth) {
    std::string out;
    for (int i = below(2) + 1; i > 0; --i) out += statement(depth + 1) + "; ";
    return out;
  }

  std::string statement(int depth) {
    const std::string n = name(), a = array();
    if (below(5) == 0) return rare_statement(depth);
    switch (below(depth > 1 ? 22 : 44)) {
      case 0:
      case 1: return n + "=" + word();
      case 2: return n + "=" + number();
      case 3: return n + "+=" + plain();
      case 4: return a + "=(" + word() + " " + word() + ")";
      case 5: return a + "+=(" + word() + ")";
      case 6: return a + "[" + one_of({"0", "1", "3"}) + "]=" + word();
      case 7: return "unset " + one_of({"A", "B", "X", "Y", "'X[0]'"});
      case 8: return "let " + n + "=" + number() + "+1";
      case 9: return "(( " + arithmetic(0) + " ))";
      case 10: return "export " + n + "=" + word();
      case 11: return "read " + n + " E <<< " + word();
      case 12: return "printf -v " + n + " '%s' " + plain();
      case 13: return "declare -i N=" + number() + "+1; " + n + "=$N";
      case 14: return "set -- " + word() + " " + word();
      case 15: return "run " + word() + " " + word();
      case 16: return test() + " && " + n + "=" + plain();
      case 17: return test() + " || " + n + "=" + plain();
      case 18: return "echo --num-layers " + word() + " > /dev/null";
      case 19: return "shift";
      case 20:
        return "IFS=" + one_of({",", ":", "X"}) + " read -r A B <<< " +
               one_of({"a:b:c", "1,2", "aXbXc", "x"});
      case 21: return n + "=$" + name();
      case 22: return "if " + test() + "; then " + block(depth) + "else " + block(depth) + "fi";
      case 23:
        return "if " + test() + "; then " + block(depth) + "elif " + test() + "; then " +
               block(depth) + "fi";
      case 24: return "for " + n + " in " + word() + " " + word() + "; do " + block(depth) + "done";
      case 25:
        return "for i in {1..3}; do " + block(depth) + "(( i == 2 )) && " +
               one_of({"break", "continue", "true"}) + "; done";
      case 26: return "for ((j=0; j<3; j++)); do " + n + "+=$j; done";
      case 27: return "k=0; while (( k < 3 )); do k=$((k+1)); " + block(depth) + "done";
      case 28:
        return "case $" + n + " in " + pattern() + ") " + block(depth) + ";; 2*|7b) " +
               block(depth) + one_of({";;", ";&", ";;&"}) + " *) " + block(depth) + ";; esac";
      case 29: return "f() { " + block(depth) + n + "=$1; }";
      case 30:
        return "f() { local A=$1 B; " + block(depth) + "C=$A; " +
               one_of({"return", "return 1", "true"}) + "; D=9; }; f " + word();
      case 31: return "g() { " + n + "=48; }";
      case 32: return "( " + block(depth) + ")";
      case 48: return "h6() { local " + n + "=$" + n + "x; run $" + n + "; }; h6";
      case 49:
        return "h7() { local " + a + "=(\"${" + a + "[@]}\" z); run \"${" + a + "[@]}\"; }; h7";
      case 33: return "{ " + block(depth) + "}";
      case 34: return "eval \"" + n + "=" + plain() + "\"";
      case 35: return "A=1 B=2 run " + word();
      case 36: return "true | { " + block(depth) + "}";
      case 37: return depth > 0 ? "true" : "read " + n + " <<EOF\n" + plain() + " $A\nEOF";
      case 38:
        return "declare -A M=([k]=" + plain() + " [j]=2); " + n + "=${M[" +
               one_of({"k", "j", "q"}) + "]}";
      case 39: return "until (( k <= 0 )); do k=$((k-1)); " + n + "=$k; done";
      case 40: return "unset -f g; " + n + "=${" + n + ":-d}";
      case 41: return test() + " && { " + block(depth) + "} || " + n + "=" + plain();
      case 42: return "readonly R=" + plain() + "; " + n + "=$R";
      default: return "run \"" + expansion() + "\" " + expansion();
    }
  }

  /// What launch scripts hardly have. Wherever it is not followed, what it assigns is unknown.
  std::string rare_statement(int depth) {
    const std::string n = name(), a = array(), b = depth > 1 ? "true" : block(depth) + "true";
    switch (below(51)) {
      case 0: return std::string("IFS=") + one_of({",", ":", "''", "$' \\t\\n'", "x"});
      case 1: return "unset IFS";
      case 2:
        return std::string("set ") + one_of({"-e", "+e", "-u", "-o pipefail", "-f", "-a", "-eu",
                                             "-o errexit", "+o pipefail"});
      case 3:
        return "select " + n + " in a b; do " + b + "; break; done </dev/null >/dev/null 2>&1";
      case 4: return "local " + n + "=5 2>/dev/null";
      case 5:
        return one_of({"RANDOM", "SECONDS", "LINENO", "OPTIND", "REPLY", "PS4", "HOSTNAME",
                       "FUNCNAME", "_"}) +
               std::string("=5; ") + n + "=" +
               one_of({"$RANDOM", "$SECONDS", "$LINENO", "$OPTIND", "$REPLY", "$PS4", "$HOSTNAME",
                       "$_"});
      case 6:
        return one_of({"[ -n $U ]", "test -n $U", "[ -z $U ]", "[ $U ]", "[ ! $U ]", "[ ! -n $U ]",
                       "[ -n $A ]", "[ -z $A ]", "[ -n $A -a -z $U ]", "[ -n \"$U\" ]",
                       "[[ -n $U ]]"}) +
               std::string(" && ") + n + "=" + plain();
      case 7: return "getopts ab: " + n + " -a -b 2; true";
      case 8:
        return std::string("mapfile ") + one_of({"-t ", "", "-t -O 1 ", "-n 1 "}) + a + " <<< " +
               word();
      case 9:
        return "declare " + std::string(one_of({"-i", "-u", "-l"})) + " " + n +
               one_of({"=1+1", "=ab", "", "+=1"}) + "; " + n + one_of({"=2*3", "+=4", "=Cd", "="});
      case 10:
        return "declare -n R" + std::to_string(depth) + "=" + n + "; R" + std::to_string(depth) +
               "=" + plain();
      case 11:
        return "let '" + n + " = " + number() + " * 2' " + n +
               one_of({"++", "--", "+=1", "=A?1:2"});
      case 12: return "read -r " + n + one_of({"", " E", " B C"}) + " <<< " + word();
      case 13: return "read -a " + a + " <<< " + word();
      case 14: return "read -r " + n + " < <(echo " + plain() + ")";
      case 15: return "echo " + plain() + " | while read " + n + "; do " + b + "; done";
      case 16: return "echo " + plain() + " | read " + n;
      case 17: return "while read " + n + "; do B=" + plain() + "; done <<< " + word();
      case 18: return "shopt -s extglob; case $" + n + " in @(a|7)*) B=1;; +([0-9])) B=2;; esac";
      case 19:
        return "trap '" + n + "=trapped' " + one_of({"EXIT", "DEBUG", "ERR", "RETURN", "USR1"});
      case 20: return "trap - DEBUG ERR EXIT";
      case 21:
        return "h() { " + b + "; " + one_of({"exit", "return", "return 3", "exit 1"}) +
               std::string("; }; ") +
               one_of({"h", "(h)", "h || true", "A=$(h)", "h | true", "h && B=9"});
      case 22: return "(exit " + std::to_string(below(3)) + ") && " + n + "=" + plain();
      case 23: return "( " + b + "; exit 1 )";
      case 24: return "eval '" + n + "=" + plain() + "; ' B=$A";
      case 25: return "eval \"$" + n + "\" 2>/dev/null";
      case 26: return "eval \"$(printf '" + n + "=%s' 48)\"";
      case 27:
        return n + "=" +
               one_of({"~", "a:~", "~/x", "\"~\"", "*", "{a,b}", "'a  b'", "$'\\x41'", "`echo a`",
                       "<(true)"});
      case 28: return "for " + n + " in * " + plain() + "; do " + b + "; done";
      case 29:
        return a + "=(" +
               one_of(
                   {"*", "{a,b} c", "$A $U", "[2]=x y", "\"$@\"", "${U:-p q}", "$B\"$A\"", "~"}) +
               ")";
      case 30: return a + "[" + one_of({"5", "-1", "A", "$A", "1+1", "i"}) + "]+=" + plain();
      case 31:
        return "unset " +
               std::string(one_of({"'X[1]'", "'Y[0]'", "A B", "-v C", "U", "f", "'M[k]'"}));
      case 32: return "printf -v " + std::string(one_of({"A", "'X[1]'", "B"})) + " '%03d' 7";
      case 33: return "h2() { local A; run \"$A\" $B; A=3; }; A=8 B=$A h2";
      case 34: return "h3() { local B=2; h4; run $B; }; h4() { unset B; B=5; }; h3";
      case 35: return "h5() { declare -g " + n + "=6; local " + n + "=7; run $" + n + "; }; h5";
      case 36: return "export " + n + "={a,b}";
      case 37:
        return "export " + std::string(one_of({"\"A=$B\"", "A=$B C", "$A", "-n A", "A B=2"})) +
               " >/dev/null 2>&1";
      case 38: return "readonly R2=5; " + n + "=$R2";
      case 39: return "true | false; [ ${PIPESTATUS[0]} = 0 ] && " + n + "=" + plain();
      case 40: return "true | true && " + n + "=" + plain();
      case 41: return "! true && " + n + "=" + plain() + " || B=" + plain();
      case 42: return "set -- " + word() + " \"$@\"; " + n + "=$#";
      case 43: return "for " + n + "; do " + b + "; done";
      case 44:
        return "while [ $# -gt 0 ]; do case $1 in --tp) " + n +
               "=$2; shift;; *) B=$1;; esac; shift; done";
      case 45: return "bash() { B=$1; }; bash -c '" + n + "=1'";
      case 46: return n + "=$(" + b + "; echo $A)";
      default:
        return "for ((i=0, " + n + "=1; i<" + std::to_string(below(4)) + "; i+=1)); do " + n +
               "=$((" + n + "*2)); " + one_of({"true", "continue", "break", "B=$i"}) + "; done";
    }
  }

  std::mt19937 random_;
};

/// What bash shows of a script: the words of every `run`, and whether it complained.
/// It complains of the null bytes of a `run` whose output a script takes, and drops them.
std::vector<Words> words_of_bash(const std::string& script, const std::filesystem::path& folder,
                                 bool& complained) {
  std::ofstream(folder / "script")
      << "run() { local w; for w; do printf '%s\\0' \"$w\"; done; printf '\\1\\0'; }\n"
      << script;
  const std::string command = "cd '" + (folder / "empty").string() +
                              "' && timeout 10 env -i PATH=/nowhere /bin/bash --norc --noprofile "
                              "../script 2>../errors </dev/null";
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  char buffer[4096];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, n);
  pclose(pipe);
  std::vector<Words> out(1);
  std::string word;
  for (const char c : text) {
    if (c != '\0')
      word += c;
    else if (word != "\1")
      out.back().push_back(std::exchange(word, ""));
    else
      word.clear(), out.emplace_back();
  }
  out.pop_back();
  complained = std::filesystem::file_size(folder / "errors") > 0;
  return out;
}

/// May these words here become those of bash? One that is not known may be any words.
bool may_be(const std::vector<ShellText>& here, std::size_t i, const Words& there, std::size_t j) {
  for (; i < here.size(); ++i, ++j) {
    if (here[i].known()) {
      if (j >= there.size() || here[i].shown() != there[j]) return false;
      continue;
    }
    for (std::size_t k = j; k <= there.size(); ++k)
      if (may_be(here, i + 1, there, k)) return true;
    return false;
  }
  return j == there.size();
}

/// May bash have run these launches, one that repeats any number of times, and no others?
bool may_become(const std::vector<ShellLaunch>& here, std::size_t i,
                const std::vector<Words>& there, std::size_t j,
                std::set<std::pair<std::size_t, std::size_t>>& tried) {
  if (j == there.size()) return true;
  if (!tried.insert({i, j}).second) return false;
  for (std::size_t k = 0; k < here.size(); ++k)
    if ((k >= i || here[k].repeats) && may_be(here[k].words, 1, there[j], 0) &&
        may_become(here, here[k].repeats ? std::min(i, k) : k + 1, there, j + 1, tried))
      return true;
  return false;
}

std::string shown(const std::vector<ShellLaunch>& launches) {
  std::string out;
  for (const ShellLaunch& launch : launches) {
    for (const ShellText& word : launch.words)
      out += (word.known() ? " <" : " ?<") + word.shown() + ">";
    out += "\n";
  }
  return out;
}

TEST(RandomShellScripts, WhatIsKnownIsWhatBashHas) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("penstock-shell-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder / "empty");
  const char* const first = std::getenv("FIRST_SEED");
  const unsigned begin = first != nullptr ? static_cast<unsigned>(std::atoi(first)) : 1;
  const int count = std::getenv("SEEDS") ? std::atoi(std::getenv("SEEDS")) : kBrief ? 200 : 600;
  int known = 0, refused = 0, shown_words = 0;
  for (unsigned seed = begin; seed < begin + static_cast<unsigned>(count); ++seed) {
    const std::string script = Fragments(seed).script();
    bool complained = false;
    const std::vector<Words> there = words_of_bash(script, folder, complained);
    std::vector<ShellLaunch> here;
    bool all_told = true;
    try {
      const ScriptSurroundings surroundings;
      ShellMachine machine(surroundings);
      machine.follow(script, "script.sh");
      here = machine.launches();
    } catch (const InputError& error) {
      if (std::getenv("SHOW_REFUSED") != nullptr)
        std::printf("%u %d %s\n", seed, complained, error.what());
      if (!complained) ++refused;
      continue;
    }
    if (complained) continue;  // what bash goes on with after an error is its own
    std::erase_if(here, [](const ShellLaunch& launch) { return launch.words[0].shown() != "run"; });
    std::set<std::pair<std::size_t, std::size_t>> tried;
    if (!may_become(here, 0, there, 0, tried)) {
      std::string expected;
      for (const Words& w : there) {
        for (const std::string& one : w) expected += " <" + one + ">";
        expected += "\n";
      }
      ADD_FAILURE() << "seed " << seed << "\n"
                    << script << "bash:\n"
                    << expected << "here:\n"
                    << shown(here);
    }
    for (const ShellLaunch& launch : here)
      for (std::size_t i = 1; i < launch.words.size(); ++i, ++shown_words) {
        known += launch.words[i].known() ? 1 : 0;
        all_told = all_told && launch.words[i].known() && !launch.repeats;
      }
    if (all_told && here.size() < there.size()) ADD_FAILURE() << script;
    if (::testing::Test::HasFailure() && std::getenv("ALL_FAILURES") == nullptr) break;
  }
  std::filesystem::remove_all(folder);
  RecordProperty("known", known);
  if (std::getenv("SHOW_REFUSED") != nullptr)
    std::printf("known %d of %d words, refused %d of %d\n", known, shown_words, refused, count);
  EXPECT_GT(known, shown_words * 6 / 10)
      << "of " << shown_words << ": what is unknown proves nothing";
  EXPECT_LT(refused, count / 20);
}

}  // namespace
}  // namespace penstock::shell_random_test
