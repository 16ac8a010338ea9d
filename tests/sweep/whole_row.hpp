// A point's row in this very process: simgrid runs once in it.
#pragma once

#include "sweep/evaluate.hpp"

namespace penstock {

inline Row whole_row(const Evaluator& evaluator, const Point& point) {
  std::function<Row()> rest;
  Row row = evaluator.begin(point, rest);
  return rest ? rest() : row;
}

}  // namespace penstock
