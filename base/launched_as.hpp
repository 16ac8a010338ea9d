// SPDX-License-Identifier: Apache-2.0
// Which of how many processes this one is, as whoever has started it says in the environment:
//
//   RANK, WORLD_SIZE                                  torchrun, penstock's own launcher
//   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE        mpirun
//   SLURM_PROCID, SLURM_NTASKS                        srun
//   PMI_RANK, PMI_SIZE                                mpiexec of MPICH and Intel MPI
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace penstock {

using Environment = std::function<std::optional<std::string>(const std::string& name)>;
/// The process's own; an empty variable is none.
std::optional<std::string> environment(const std::string& name);

struct LaunchedAs {
  int rank = 0;
  int size = 1;
  const char* rank_variable;  ///< which says so
};

/// The first of these pairs that is set; none: it was started alone. Throws InputError naming the
/// variable that is wrong or missing.
std::optional<LaunchedAs> launched_as(const Environment& get);

/// What a variable says. Throws InputError naming it unless that is an integer of these.
int integer_variable(const std::string& name, const std::string& text, int least, int most);

}  // namespace penstock
