// The generators. The file generate_<name>.cc of each describes its order, with a drawing, and its properties. Inside
// this module only.
#pragma once

#include "penstock/schedule/generator.h"

namespace penstock {

extern const Generator sequential_generator;         // generate_sequential.cc
extern const Generator gpipe_generator;              // generate_gpipe.cc
extern const Generator one_f_one_b_generator;        // generate_1f1b.cc
extern const Generator early_one_f_one_b_generator;  // generate_1f1b_early.cc
extern const Generator interleaved_generator;        // generate_interleaved.cc
extern const Generator looped_bfs_generator;         // generate_looped_bfs.cc
extern const Generator zb_h1_generator;              // generate_zb_h1.cc
extern const Generator zb_h2_generator;              // generate_zb_h2.cc
extern const Generator zb_auto_generator;            // generate_zb_auto.cc
extern const Generator zb_v_generator;               // generate_zb_v.cc
extern const Generator v_half_generator;             // generate_v_half.cc
extern const Generator v_min_generator;              // generate_v_min.cc
extern const Generator dualpipe_v_generator;         // generate_dualpipe_v.cc
extern const Generator forward_only_generator;       // generate_forward_only.cc

}  // namespace penstock
