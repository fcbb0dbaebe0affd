// How the ops of tests are done, unless they are about that: none is gathered.
#ifndef HVD_FT_TESTS_OP_RULES_H
#define HVD_FT_TESTS_OP_RULES_H

#include "hvd_ft.h"
#include "protocol/ring_plan.h"
#include "protocol/segments.h"

constexpr hvdft_op_rules kOpRules = {hvdft::kNodeSegmentBytes, 0, hvdft::kRingSegmentBytes, 0};

#endif  // HVD_FT_TESTS_OP_RULES_H
