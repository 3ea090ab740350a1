"""Roles of attention, which the engine's layers are told."""

VALUES = {"ENCODER_DECODER": '"encoder_decoder"', "ENCODER_ONLY": '"encoder_only"', "DECODER": '"decoder"'}
