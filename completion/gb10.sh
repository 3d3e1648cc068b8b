# shellcheck shell=bash
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Completion of ./gb10 in bash:  . completion/gb10.sh
# In zsh, after:                 autoload -U compinit bashcompinit && compinit && bashcompinit
# The three lists are made by tests/tools/lists.py.
_gb10_verbs='awx_configure baseline bench bundle calibrate doctor explain fabric glance import init logs mode models nemotron_tp2 plan postmortem preflight profiles protect prune serve status teardown'
_gb10_profiles='deepseek_v4_flash_tp2 gemma_4_26b_a4b_fp8_one gemma_4_26b_a4b_nvfp4_one glm_5_3_flash_nvfp4_tp2 gpt_oss_120b_one gpt_oss_120b_tp2 minimax_m2_7_nvfp4_tp2 nemotron_3_super_one nemotron_3_super_tp2 qwen3_235b_gptq_int4_tp2 qwen3_235b_nvfp4_tp2 qwen3_30b_a3b_thinking_fp8_tp2 qwen3_5_122b_fp8_tp2 qwen3_5_122b_nvfp4_one qwen3_5_122b_sm121_one qwen3_6_35b_a3b_nvfp4_one qwen3_6_35b_a3b_redhat_one qwen3_8_27b_nvfp4_one qwen3_8_27b_nvfp4_tp2 qwen3_8_flash_next_nvfp4_one qwen3_8_flash_next_nvfp4_tp2'
_gb10_tags='bench=ladder calibrate=cluster,driver doctor=baseline,fabric,preflight,stacks,validate nemotron_tp2=image,memory,model,native,preflight,proof,ray,report,serve,validate plan=profiles protect=guard,protect,sweep,validate serve=image,memory,model,native,preflight,proof,ray,report,serve,validate status=glance,logs,postmortem'

_gb10() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]} words='' match
  if [[ $COMP_CWORD == 1 ]]; then
    words=$_gb10_verbs
  elif [[ $before == --tags || $before == -t ]]; then
    words=" $_gb10_tags "
    if [[ $words == *" $verb="* ]]; then
      words=${words#*" $verb="}
      words=${words%% *}
      words=${words//,/ }
    else
      words=''
    fi
  elif [[ $word == -* ]]; then
    words='--ask-become-pass --check --diff --extra-vars --inventory --limit --tags --user'
  elif [[ $COMP_CWORD == 2 ]]; then
    case $verb in
      plan | preflight | serve) words=$_gb10_profiles ;;
      mode) words='cluster off singles' ;;
    esac
  fi
  COMPREPLY=()
  while IFS= read -r match; do COMPREPLY+=("$match"); done < <(compgen -W "$words" -- "$word")
}
complete -o default -F _gb10 gb10
