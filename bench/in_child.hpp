// SPDX-License-Identifier: Apache-2.0
// Measuring what a process of its own uses: memory, once freed, is not given back.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <vector>

namespace penstock {

/// Runs `work` in a child process; returns what it wrote.
inline std::vector<double> in_child(const std::function<std::vector<double>()>& work) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    std::vector<double> answer;
    try {
      answer = work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      _exit(1);
    }
    const char* at = reinterpret_cast<const char*>(answer.data());
    std::size_t left = answer.size() * sizeof(double);
    while (left > 0) {
      const ssize_t wrote = write(ends[1], at, left);
      if (wrote <= 0) _exit(1);
      at += wrote;
      left -= static_cast<std::size_t>(wrote);
    }
    _exit(0);
  }
  close(ends[1]);
  std::vector<double> answer;
  double value = 0;
  FILE* in = fdopen(ends[0], "rb");
  while (std::fread(&value, sizeof value, 1, in) == 1) answer.push_back(value);
  std::fclose(in);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? answer : std::vector<double>{};
}

/// Of the largest child of this process that has ended, bytes.
inline double peak_bytes_of_children() {
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

}  // namespace penstock
