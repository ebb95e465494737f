// The public header of the module `trace`: what each rank did or would do, where its time went, and pictures of it.
#pragma once

#include "penstock/trace/account.h"
#include "penstock/trace/chrome.h"
#include "penstock/trace/recorder.h"
#include "penstock/trace/schedule_json.h"
#include "penstock/trace/schedule_picture.h"
#include "penstock/trace/schedule_table.h"
#include "penstock/trace/svg.h"
